"""Recipes: every fault names its key, every key is documented."""

import re
import subprocess
import sys
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks.accuracy.models import GROUPS
from model.nets import registry
from training import old_names, recipe_models
from training.errors import RecipeError
from training.recipe import RECIPES, DataRecipe, TrainRecipe, make_recipe, read_recipe

SECTIONS: dict[str, list[Any]] = {
    "data": [DataRecipe],
    "model": [*recipe_models.MODELS.values()],
    "train": [TrainRecipe],
}
KEYS = [
    (section, key)
    for section, kinds in SECTIONS.items()
    for key in dict.fromkeys(entry.name for kind in kinds for entry in fields(kind))
]
EXPLAINED = {
    entry.name for kind in (DataRecipe, recipe_models.TransformerRecipe, TrainRecipe) for entry in fields(kind)
}
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "reference" / "recipes.md"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"trian": {}}, "no section trian: did you mean train"),
        ({"train": {"epoch": 3}}, r"no key train\.epoch: did you mean train\.epochs"),
        ({"train": {"zzzz": 3}}, r"no key train\.zzzz: known: seed"),
        ({"train": 3}, r"train must be a section \[train\]"),
        ({"train": {"epochs": "5"}}, r"train\.epochs must be a whole number, not '5'"),
        ({"train": {"epochs": 5.0}}, r"train\.epochs must be a whole number"),
        ({"train": {"epochs": True}}, r"train\.epochs must be a whole number"),
        ({"train": {"epochs": None}}, r"train\.epochs must be a whole number"),
        ({"train": {"epochs": 0}}, r"train\.epochs must be at least 1"),
        ({"train": {"learning_rate": True}}, r"train\.learning_rate must be a number"),
        ({"train": {"learning_rate": float("nan")}}, r"train\.learning_rate must be a finite number"),
        ({"train": {"learning_rate": 0}}, r"train\.learning_rate must be above 0"),
        ({"train": {"mask_probability": 1}}, r"train\.mask_probability must be above 0 and below 1"),
        ({"train": {"last_item_share": 1.01}}, r"train\.last_item_share must be between 0 and 1"),
        ({"train": {"device": "tpu"}}, r"train\.device must be one of auto, cpu, cuda"),
        ({"train": {"budget_seconds": 0}}, r"train\.budget_seconds must be above 0"),
        ({"train": {"window_stride": 0}}, r"train\.window_stride must be at least 1, or absent"),
        ({"train": {"window_stride": 201}}, r"train\.window_stride must be at most model\.max_length \(200\)"),
        ({"model": {"heads": 3}}, r"model\.width must be a multiple of heads \(3\)"),
        ({"model": {"max_length": 1}}, r"model\.max_length must be at least 2"),
        ({"model": {"dropout": 1.0}}, r"model\.dropout must be at least 0 and below 1"),
        ({"model": {"attention_dropout": 1}}, r"model\.attention_dropout must be at least 0 and below 1"),
        ({"model": {"name": "gru"}}, r"model\.name must be one of bert4rec, sasrec"),
        ({"model": {"name": 3}}, r"model\.name must be one of bert4rec, sasrec"),
        (
            {"model": {"name": "gru4rec", "heads": 2}},
            r"model\.heads does not apply to gru4rec; its keys are name, max",
        ),
        ({"model": {"name": "pop", "width": 2}}, r"model\.width does not apply to pop; its keys are name"),
        ({"model": {"name": "gru4rec", "layers": 0}}, r"model\.layers must be at least 1"),
        ({"model": {"name": "gru4rec", "dropout": 1.0}}, r"model\.dropout must be at least 0 and below 1"),
        ({"model": {"name": "caser", "window": 0}}, r"model\.window must be at least 1"),
        ({"model": {"name": "recent-pop", "days": 0}}, r"model\.days must be above 0"),
        ({"model": {"name": "rules", "reach": 0}}, r"model\.reach must be at least 1"),
        ({"model": {"name": "rules", "decay": 0.4}}, r"model\.decay must be between 0\.5 and 1"),
        ({"model": {"name": "item-knn", "neighbours": 0}}, r"model\.neighbours must be at least 1"),
        ({"model": {"name": "session-knn", "sessions": 9}}, r"model\.sessions must be at least model\.neighbours"),
        ({"model": {"norm": "after"}}, r"model\.norm must be one of post, pre, none, or absent"),
        ({"model": {"activation": "tanh"}}, r"model\.activation must be one of gelu, relu, or absent"),
        ({"model": {"positions": "sine"}}, r"model\.positions must be one of learned, relative, none"),
        ({"model": {"residual": 1}}, r"model\.residual must be true or false, not 1"),
        ({"model": {"inner_factor": 0}}, r"model\.inner_factor must be at least 1, or absent"),
        ({"model": {"rules_per_item": 0}}, r"model\.rules_per_item must be at least 1, or absent"),
        ({"model": {"name": "gru4rec", "rules_per_item": 5}}, r"model\.rules_per_item"),
        ({"model": {"name": "ncf"}}, r"train\.loss must be one of gbce, bce, .* for ncf, which has no table"),
        ({"model": {"popularity_discount": 11}}, r"model\.popularity_discount must be between 0 and 10"),
        ({"train": {"loss": "hinge"}}, r"train\.loss must be one of softmax, sampled_softmax, gbce, bce, bpr"),
        ({"train": {"loss": "gbce"}}, r"train\.negatives must be given when train\.loss is gbce"),
        ({"train": {"negatives": 0}}, r"train\.negatives must be at least 1, or absent"),
        ({"train": {"gbce_t": 1.1}}, r"train\.gbce_t must be between 0 and 1"),
        ({"train": {"mask_count": 0}}, r"train\.mask_count must be at least 1, or absent"),
        ({"train": {"max_masks": 0}}, r"train\.max_masks must be at least 1, or absent"),
        ({"train": {"precision": "half"}}, r"train\.precision must be one of auto, float32, bfloat16"),
        ({"data": {"format": "xml"}}, r"data\.format must be one of"),
        ({"data": {"split": "random"}}, r"data\.split must be one of leave-one-out, time"),
        ({"data": {"test_share": 0.5}}, r"data\.test_share must be above 0 and below 0\.5"),
        ({"data": {"held_out_users": 0}}, r"data\.held_out_users must be at least 1, or absent"),
        ({"data": {"min_item_events": 0}}, r"data\.min_item_events must be at least 1"),
        ({"data": {"filter_rounds": 0}}, r"data\.filter_rounds must be at least 1, or absent"),
        ({"data": {"event_types": "buy"}}, r"data\.event_types must be a list of strings"),
    ],
)
def test_faults_name_their_key(document, message):
    """Unknown names give near matches, wrong types and ranges say what is wanted."""
    with pytest.raises(RecipeError, match=message):
        make_recipe(document)


def test_settings_go_over_the_recipe():
    """--set takes TOML values, bare words, null, and other sections than the file has."""
    made = make_recipe(
        {"train": {"epochs": 7, "budget_seconds": 5}},
        [
            *("train.epochs=9", "model.dropout=0", "data.event_types=['a','b']", "train.device=cpu"),
            *(
                "train.budget_seconds=null",
                "data.user_column=.uid",
                "data.timestamp_column=",
                "train.learning_rate=.01",
            ),
        ],
    )
    assert made.train.epochs == 9
    assert isinstance(made.model, recipe_models.TransformerRecipe)
    assert made.model.dropout == 0.0
    assert isinstance(made.model.dropout, float)
    assert made.data.event_types == ("a", "b")
    assert made.train.device == "cpu"
    assert made.train.budget_seconds is None
    assert made.data.user_column == ".uid"
    assert made.data.timestamp_column == ""
    assert made.train.learning_rate == 0.01


OLD = {
    "data": {"behaviour": ["type"]},
    "model": {"network": "caser", "span": 4, "horizontal": 3, "vertical": 2},
    "train": {"start": "ppmi", "copies": 2, "calibration": 0.5, "window_step": 9, "crop_share": 0.25},
}


def test_old_names_of_keys_are_read_and_announced_once(capsys, monkeypatch):
    """Recipes, settings and stored runs may use them; one line on stderr says what they are called now."""
    monkeypatch.setattr(old_names, "_announced", set())
    made = make_recipe(OLD, ["data.behaviour=['value']"])
    assert made.data.event_features == ("value",)
    assert isinstance(made.model, recipe_models.CaserRecipe)
    assert (made.model.name, made.model.window) == ("caser", 4)
    assert (made.model.horizontal_filters, made.model.vertical_filters) == (3, 2)
    assert (made.train.item_init, made.train.mask_copies, made.train.gbce_t) == ("ppmi", 2, 0.5)
    assert (made.train.window_stride, made.train.crop_probability) == (9, 0.25)
    [line] = capsys.readouterr().err.splitlines()
    assert "model.network is now model.name" in line
    assert "train.copies is now train.mask_copies" in line
    assert make_recipe(OLD, ["data.behaviour=['value']"]) == made
    assert capsys.readouterr().err == ""
    nova = {"network": "nova-bert", "tied": True, "rules": 3, "composed": True, "new_items": 0.2, "categories": ["a"]}
    old = make_recipe({"model": nova | {"behaviour_dropout": 0.3}}, announce=False).model
    assert isinstance(old, recipe_models.NovaRecipe)
    assert (old.tie_embeddings, old.rules_per_item, old.feature_embeddings) == (True, 3, True)
    assert (old.id_dropout, old.event_dropout) == (0.2, 0.3)
    assert capsys.readouterr().err == ""


def test_old_names_stand_for_keys_that_exist():
    """Each deprecated name leads to a key of today, and none of them is a key of its own section."""
    known = {section: {key for name, key in KEYS if name == section} for section in SECTIONS}
    for section, renamed in old_names.OLD_KEYS.items():
        assert set(renamed.values()) <= known[section]
        assert not set(renamed) & known[section]


def test_a_setting_by_an_old_name_goes_over_the_recipe():
    """The recipe may have the new name and the setting the old one; in one document the two are refused."""
    assert make_recipe({"model": {"name": "sasrec"}}, ["model.network=gru4rec"]).model.name == "gru4rec"
    assert make_recipe({"model": {"network": "sasrec"}}, ["model.name=gru4rec"]).model.name == "gru4rec"
    with pytest.raises(RecipeError, match=r"model\.network is the old name of model\.name"):
        make_recipe({"model": {"name": "sasrec", "network": "sasrec"}})


def test_the_old_name_of_a_recipe_is_read_and_announced(capsys, monkeypatch):
    """One line on stderr says what it is called now."""
    monkeypatch.setattr(old_names, "_announced", set())
    assert read_recipe("demo") == read_recipe("bert4rec-small")
    assert capsys.readouterr().err.splitlines() == [
        "nextitem-train: deprecated names, removed in the next release: recipe demo is now bert4rec-small"
    ]


def test_old_names_of_recipes_stand_for_recipes_that_exist():
    """Each leads to a shipped recipe, and none of them is one."""
    shipped = {path.stem for path in RECIPES.glob("*.toml")}
    assert set(old_names.OLD_RECIPES.values()) <= shipped
    assert not set(old_names.OLD_RECIPES) & shipped


def test_windows_may_touch_but_leave_no_gap():
    """A step of the whole window is the largest one."""
    touching = {"model": {"max_length": 9}, "train": {"window_stride": 9}}
    assert make_recipe(touching).train.window_stride == 9
    with pytest.raises(RecipeError, match=r"train\.window_stride must be at most model\.max_length \(8\)"):
        make_recipe(touching, ["model.max_length=8"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epochs=3", "needs section.key=value"),
        ("train.epochs", "needs section.key=value"),
        ("train.epoch=3", r"did you mean train\.epochs"),
        ("trains.epochs=3", "did you mean train"),
        ("train.epochs=many", r"train\.epochs must be a whole number, not 'many'"),
    ],
)
def test_bad_settings_are_refused(setting, message):
    """A setting is checked as the file is."""
    with pytest.raises(RecipeError, match=message):
        make_recipe({}, [setting])


def test_recipes_are_found_by_name_or_path(tmp_path):
    """A bare name is one of ours, anything else a path; a name that is neither lists what there is."""
    path = tmp_path / "mine.toml"
    path.write_text("[train]\nepochs = 2\n")
    assert read_recipe(str(path)).train.epochs == 2
    assert vars(read_recipe("bert4rec-ml-1m").model)["max_length"] == 200
    with pytest.raises(RecipeError, match=r"no recipe 'none': .* bert4rec-ml-1m, .* bert4rec-small, "):
        read_recipe("none")
    path.write_text("[train\n")
    with pytest.raises(RecipeError, match=r"mine\.toml cannot be read as a recipe"):
        read_recipe(str(path))


@pytest.mark.parametrize("name", recipe_models.NETWORKS)
def test_a_recipe_makes_its_network(name):
    """Whatever the recipe leaves to the network's paper, the sizes of a recipe are those that its network takes."""
    model = make_recipe({"model": {"name": name, "width": 8}}, ["train.loss=bce", "train.negatives=1"]).model
    assert isinstance(model, recipe_models.NetworkRecipe)
    network = registry.make_network(name, item_count=3, user_count=2, **model.sizes)
    assert type(network) is registry.NETWORKS[name]
    assert (network.config.width, network.item_count) == (8, 3)


def test_reading_a_recipe_imports_no_torch():
    """`--help` and a fault in a recipe are instant: the networks' sizes are apart from the networks."""
    program = "import sys, training.recipe; training.recipe.read_recipe('nova'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_a_recipe_survives_json():
    """What config.json holds gives the same recipe again."""
    made = read_recipe("bert4rec-small", ["data.event_types=['view']"])
    assert make_recipe(made.to_dict()) == made


def test_choices_are_what_differs_from_defaults():
    """They make the recipe again, and a key at its default, written down or not, is none of them."""
    made = read_recipe("sasrec-ml-1m", ["train.seed=1", "train.item_init=random"])
    assert make_recipe(made.list_choices()) == made == make_recipe(made.to_dict())
    assert "seed" not in made.list_choices()["train"]
    assert made.list_choices() == read_recipe("sasrec-ml-1m").list_choices()
    assert read_recipe("sasrec-ml-1m", ["train.seed=2"]).list_choices()["train"]["seed"] == 2


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.toml")))
def test_shipped_recipes_are_valid(name):
    """Every recipe in the folder reads, says only what it knows, and is listed in docs/reference/recipes.md."""
    assert f"`{name}`" in DOCS.read_text().split("\n## ", maxsplit=1)[0]
    document = tomllib.loads((RECIPES / f"{name}.toml").read_text())
    assert make_recipe(document) == read_recipe(name)


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_every_key_is_documented(section, key):
    """Each key has a row in recipes.md under its section; those of a transformer a comment in bert4rec-small.toml."""
    heading = re.split(r"^## ", DOCS.read_text(), flags=re.MULTILINE)
    table = next(part for part in heading if part.startswith(f"[{section}]"))
    assert re.search(rf"^\| `{key}` \| .+ \| .{{10,}} \|$", table, flags=re.MULTILINE)
    assert key not in EXPLAINED or re.search(
        rf"^(# )?{key} = \S+ .*# .{{5,}}$", (RECIPES / "bert4rec-small.toml").read_text(), flags=re.MULTILINE
    )


def test_advanced_keys_are_set_nowhere():
    """What the advanced tables of recipes.md hold is at its default in every shipped recipe and every benchmark."""
    parts = re.split(r"^### Advanced keys of \[(\w+)\]$", DOCS.read_text(), flags=re.MULTILINE)
    tables = zip(parts[1::2], (re.split("^##", part, flags=re.MULTILINE)[0] for part in parts[2::2]), strict=True)
    advanced = {(section, key) for section, text in tables for key in re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)}
    recipes = [read_recipe(path.stem) for path in RECIPES.glob("*.toml")]
    recipes += [cell.recipe for group in GROUPS for cell in group.make_plan(ROOT, ROOT, ROOT).list_cells()]
    assert len(advanced) > 9
    assert not advanced & {
        (section, key) for made in recipes for section in SECTIONS for key in made.list_choices()[section]
    }


def test_documented_defaults_are_the_real_ones():
    """The default column of docs/reference/recipes.md says what the dataclasses say, and names no key that is gone."""
    for part in re.split(r"^## ", DOCS.read_text(), flags=re.MULTILINE):
        name = re.match(r"\[(\w+)\]", part)
        if name:
            rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", part, flags=re.MULTILINE))
            assert rows.keys() == {key for section, key in KEYS if section == name[1]}
            written = {key: tomllib.loads(f"v = {cell[1:-1]}")["v"] for key, cell in rows.items() if cell != "absent"}
            default: dict[str, Any] = {}
            for kind in reversed(SECTIONS[name[1]]):  # where models differ, the transformers' is shown
                default |= {entry.name: entry.default for entry in fields(kind) if entry.default is not MISSING}
            default = {key: value for key, value in default.items() if value is not None}
            assert {key: tuple(v) if isinstance(v, list) else v for key, v in written.items()} == default


@pytest.mark.parametrize("name", recipe_models.MODELS)
def test_every_models_keys_are_documented(name):
    """The table of models in recipes.md lists what each one knows beside `name`, with its own default."""
    row = re.search(rf"^\| `{name}` \|.*\| ([^|]*) \|$", DOCS.read_text(), flags=re.MULTILINE)
    assert row, f"{name} has no row"
    known = {entry.name: entry.default for entry in fields(recipe_models.MODELS[name]) if entry.name != "name"}
    assert set(re.findall(r"`(\w+)`", row[1])) == set(known)

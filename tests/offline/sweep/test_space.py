"""What `--try` and presets ask for: read by type, checked before anything is trained."""

import re

import pytest

from training.arguments.names import SWEEP_PRESETS
from training.errors import InputError
from training.recipe import RECIPES, make_recipe, read_recipe
from training.sweep.best import format_recipe
from training.sweep.plan import make_plan
from training.sweep.presets import PRESETS
from training.sweep.space import Range, Values, count_combinations, list_combinations, read_parameter


@pytest.fixture
def plan(tmp_path):
    """A maker of plans: what is tried, and whatever else differs from the defaults."""

    def make(*tried, recipe="bert4rec-small", settings=(), **more):
        defaults = {"preset": None, "grid": False, "data": tmp_path, "items": None, "out": tmp_path / "sweep"}
        return make_plan(
            recipe, settings, tried=tried, **{**defaults, "trials": None, "minutes": None, "prune": True, **more}
        )

    return make


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("model.width=64, 128", Values(key="model.width", values=(64, 128))),
        ("train.mask_count=null,1", Values(key="train.mask_count", values=(None, 1))),
        ("model.residual=true,false", Values(key="model.residual", values=(True, False))),
        ("model.norm=pre,post,pre", Values(key="model.norm", values=("pre", "post"))),
        ("model.dropout=.1...5", Range(key="model.dropout", low=0.1, high=0.5, whole=False)),
        ("train.clip_norm=1..5", Range(key="train.clip_norm", low=1.0, high=5.0, whole=False)),
        ("train.epochs=1..5", Range(key="train.epochs", low=1, high=5, whole=True)),
        ("model.width=16..250:16", Range(key="model.width", low=16, high=240, whole=True, step=16)),
        (
            "train.learning_rate=1e-3..5e-3",
            Range(key="train.learning_rate", low=1e-3, high=5e-3, whole=False, logarithmic=True),
        ),
        ("train.negatives=8..512", Range(key="train.negatives", low=8, high=512, whole=True, logarithmic=True)),
    ],
    ids=str,
)
def test_values_and_ranges_are_read_by_the_type_of_their_key(text, parameter):
    """Whole numbers where the key takes them, the logarithm over a factor of ten and for the learning rate."""
    assert read_parameter(text, make_recipe({})) == parameter


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model.width", "--try needs section.key=a,b or section.key=low..high, not 'model.width'"),
        ("learning_rate=1e-3,2e-3", "did you mean train.learning_rate?"),
        ("model.width=64", "give two values or more, or fix the one with --set"),
        ("model.width=64,,128", "'' is no value"),
        ('model.categories=["a"],["b"]', "a key that holds a list cannot be tried"),
        ("train.learning_rate=2e-3..1e-3", "from a smaller number to a larger one"),
        ("train.learning_rate=low..high", "'low' is no number"),
        ("model.dropout=.1...5:.1", "a step is a whole number"),
        ("data.min_user_events=1,5", "the same questions of the same log"),
        ("model.popularity_discount=0,1", "it acts after the training"),
        ("train.lerning_rate=1e-3,2e-3", "did you mean train.learning_rate"),
        ("training.seed=1,2", "there is no section training: did you mean train?"),
        ("model.width=64,wide", "model.width must be a whole number, not 'wide'"),
        ("model.width=63,64", "width"),
        ("train.mask_probability=.5..1.5", "train.mask_probability must be above 0 and below 1"),
        ("model.days=1,2", "model.days does not apply to bert4rec"),
    ],
    ids=str,
)
def test_what_cannot_be_tried_is_refused(plan, text, message):
    """In a sentence that names the key, before a log is read."""
    with pytest.raises(InputError, match=re.escape(message)):
        plan(text)


def test_a_value_needs_one_combination_that_has_it(plan):
    """63 is no multiple of the recipe's two heads, but of one head, and 8 heads fit the width of 64 alone."""
    space = plan("model.width=63,64", "model.heads=1,8", grid=True)
    assert space.combinations == (
        {"model.width": 63, "model.heads": 1},
        {"model.width": 64, "model.heads": 1},
        {"model.width": 64, "model.heads": 8},
    )
    [left_out] = space.left_out
    assert "multiple" in left_out
    with pytest.raises(InputError, match=re.escape("model.width is tried twice")):
        plan("model.width=32,64", "model.width=128,256")
    with pytest.raises(InputError, match=re.escape("nothing to try")):
        plan()


def test_a_grid_has_an_end(plan):
    """Every combination is a trial; a range of numbers with a point has none."""
    whole = read_parameter("model.layers=1..3", make_recipe({}))
    space = [whole, read_parameter("model.norm=pre,post", make_recipe({}))]
    assert count_combinations(space) == len(list_combinations(space)) == 6
    assert list_combinations(space)[1] == {"model.layers": 1, "model.norm": "post"}
    assert count_combinations([read_parameter("model.dropout=.1...2", make_recipe({}))]) is None
    with pytest.raises(InputError, match="a grid wants values"):
        plan("model.dropout=.1...2", grid=True)


def test_few_combinations_are_all_tried(plan):
    """An optimizer has nothing to choose where there are no more combinations than trials; pruning stays."""
    few = plan("model.width=32,64", "model.layers=1,2", trials=4)
    assert (len(few.combinations), few.trials, few.prune, few.grid) == (4, 4, True, False)
    assert plan("model.width=32,64", "model.layers=1,2", trials=3).combinations is None
    grid = plan("model.width=32,64", "model.layers=1,2", grid=True)
    assert (grid.trials, grid.prune) == (4, False)


def test_the_recipes_own_values_are_known(plan):
    """Where all of them are tried, written as they are tried; not where one lies outside."""
    assert plan("model.width=32,64", "train.learning_rate=1e-4..1e-2").find_own() == {
        "model.width": 64,
        "train.learning_rate": 3e-3,
    }
    assert plan("model.width=16..64:16").find_own() == {"model.width": 64}
    assert plan("model.width=32,128", "train.learning_rate=1e-4..1e-2").find_own() is None


def test_presets_are_the_papers():
    """By the names that the parser knows, of values that the papers have."""
    assert tuple(PRESETS) == SWEEP_PRESETS
    assert PRESETS["bert4rec-width"].parameter.values == (16, 32, 64, 128, 256)
    assert PRESETS["bert4rec-mask-share"].parameter.values[::4] == (0.1, 0.5, 0.9)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_recipes(plan, name):
    """All different, and each variant changes what its name says; a model that it is not about is refused."""
    recipe = "nova" if name == "nova-fusion" else "bert4rec-small"
    found = plan(recipe=recipe, preset=name)
    recipes = [found.make_recipe(values) for values in found.combinations]
    assert len(recipes) == found.trials >= 5
    assert all(one != other for place, one in enumerate(recipes) for other in recipes[:place])
    with pytest.raises(InputError, match="the recipe's model is gru4rec"):
        plan(recipe="gru4rec", preset=name)


def test_the_ablation_is_table_5(plan):
    """As it is, with two layers and two heads, then one change at a time: each named once."""
    found = plan(preset="bert4rec-ablations")
    names = [values["variant"] for values in found.combinations]
    assert names[:6] == [
        "as it is",
        "no positions",
        "no feed-forward network",
        "no LayerNorm",
        "no residual connections",
        "no dropout",
    ]
    assert names[6:] == ["1 layer", "3 layers", "4 layers", "1 head", "4 heads", "8 heads"]
    bare = found.make_recipe({"variant": "no dropout"}).model
    assert (bare.dropout, bare.attention_dropout) == (0.0, 0.0)


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.toml")))
def test_a_recipe_is_written_as_it_is_read(tmp_path, name):
    """Whatever keys it has, texts with quotes and lists among them."""
    recipe = read_recipe(name, ['data.user_column="the \\"user\\", 名"', "data.event_types=[\"a'b\", 'c']"])
    (tmp_path / "again.toml").write_text(format_recipe(recipe), encoding="utf-8")
    assert read_recipe(str(tmp_path / "again.toml")) == recipe

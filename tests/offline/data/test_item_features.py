"""Items' side information: columns become codes, and a run carries them to its bundle."""

import csv
import json

import numpy as np
import pytest

from model.contract.bundle import read_bundle
from model.contract.vocabulary import Vocabulary
from training.cli import main
from training.data.item_features import columns_from_json, columns_to_json, encode_items, find_edges, learn_columns
from training.errors import DataError, RecipeError
from training.recipe import make_recipe
from training.runs.networks import load_network
from training.runs.run import Run

VOCABULARY = Vocabulary(["a", "b", "c", "d"])
KNOWN = {
    "a": {"genres": ["X", "Y"], "year": 1990, "title": "A"},
    "b": {"genres": ["Y"], "year": 1980},
    "c": {},
    "outside": {"genres": ["Z"], "year": 2020},
}


def make_model(**keys):
    """The [model] of a network with side information."""
    return make_recipe({"model": {"name": "nova-bert", **keys}}).model


def test_columns_are_learned_from_the_items_of_the_log():
    """Each genre has a code in alphabetical order, each year its bucket; what only other items have has none."""
    columns = learn_columns(make_model(categories=["genres"], numbers=["year"]), KNOWN, VOCABULARY)
    assert columns_to_json(columns) == [
        {"name": "genres", "values": ("X", "Y")},
        {"name": "year", "edges": (1985.0,)},
    ]
    assert [column.size for column in columns] == [2, 2]
    genres, years = encode_items(columns, KNOWN, VOCABULARY)
    assert genres.tolist() == [[0, 0], [1, 2], [2, 0], [0, 0], [0, 0], [0, 0]]
    assert years.tolist() == [[0], [2], [1], [0], [0], [0]]


def test_columns_survive_json():
    """What a run keeps gives the same codes again."""
    columns = learn_columns(make_model(categories=["genres"], numbers=["year"]), KNOWN, VOCABULARY)
    assert columns_from_json(json.loads(json.dumps(columns_to_json(columns)))) == columns


def test_buckets_hold_equally_many_items():
    """A hundred distinct numbers in four buckets: twenty-five each, an edge being the first of its bucket."""
    numbers = np.arange(100.0) ** 2
    edges = find_edges(numbers, 4)
    assert np.bincount(np.searchsorted(edges, numbers, side="right")).tolist() == [25, 25, 25, 25]
    assert find_edges(np.ones(9), 4) == ()


def test_a_number_may_be_a_category():
    """A column of category numbers in [model] categories is one of names."""
    known = {"a": {"shelf": 7}, "b": {"shelf": 11}}
    (column,) = learn_columns(make_model(categories=["shelf"]), known, VOCABULARY)
    assert columns_to_json([column]) == [{"name": "shelf", "values": ("11", "7")}]
    assert encode_items([column], known, VOCABULARY)[0].tolist() == [[0], [2], [1], [0], [0], [0]]


@pytest.mark.parametrize(
    ("keys", "known", "fault", "words"),
    [
        ({"categories": ["genres"]}, None, RecipeError, "give that file with --items FILE"),
        ({"categories": ["genre"]}, KNOWN, DataError, "has no 'genre' .* only genres, title, year"),
        ({"numbers": ["title"]}, KNOWN, DataError, r"'title' does not hold numbers: put it into model\.categories"),
    ],
)
def test_what_cannot_be_learned_is_refused(keys, known, fault, words):
    """No file, no such column, and texts where numbers should be."""
    with pytest.raises(fault, match=words):
        learn_columns(make_model(**keys), known, VOCABULARY)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"fusion": "mix"}, r"model\.fusion must be one of add, concat, gate"),
        ({"buckets": 1}, r"model\.buckets must be at least 2"),
        ({"categories": ["a"], "numbers": ["a"]}, "columns named once"),
        ({"id_dropout": 0.1}, r"model\.id_dropout must be 0 without categories or numbers"),
        (
            {"feature_embeddings": True},
            r"model\.feature_embeddings must be false without categories or numbers",
        ),
        ({"id_dropout": 1.0, "numbers": ["a"]}, r"model\.id_dropout must be at least 0 and below 1"),
    ],
)
def test_recipes_that_cannot_be_fused_are_refused(keys, words):
    """A wrong key is named."""
    with pytest.raises(RecipeError, match=words):
        make_model(**keys)


def test_other_networks_have_no_side_information():
    """The keys mean nothing to BERT4Rec, and its recipe asks for no items file."""
    with pytest.raises(RecipeError, match=r"model\.categories does not apply to bert4rec"):
        make_recipe({"model": {"categories": ["genres"]}})
    assert learn_columns(make_recipe({}).model, None, VOCABULARY) == ()


@pytest.fixture
def items_csv(tmp_path):
    """Half of the ring's items are odd, all have a year."""
    path = tmp_path / "items.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["item", "genres", "year"])
        writer.writerows([f"i{item:02}", "odd|all" if item % 2 else "all", 1990 + item] for item in range(1, 13))
    return path


SMALL = [
    *("--set", "model.name=nova-bert", "--set", "model.max_length=6", "--set", "model.width=16"),
    *("--set", "model.layers=1", "--set", "train.epochs=2", "--set", "train.batch_size=8", "--set", "train.device=cpu"),
    *("--set", 'model.categories=["genres"]', "--set", 'model.numbers=["year"]', "--set", "model.buckets=3"),
    *("--set", "model.rules_per_item=null"),
]


def test_a_run_with_side_information_is_trained_and_published(tmp_path, cycle_csv, items_csv, capsys):
    """The columns are in the run, their codes in the weights and in the bundle's graph, whose inputs stay the same."""
    out, bundles = tmp_path / "run", tmp_path / "bundles"
    fit = ["fit", "bert4rec-small", "--data", str(cycle_csv), "--out", str(out), *SMALL]
    assert main(fit) == 2
    assert "give that file with --items FILE" in capsys.readouterr().err
    assert not (out / "config.json").exists()
    assert main([*fit, "--items", str(items_csv)]) == 0
    run = Run.open(out)
    assert [column.name for column in run.read_columns()] == ["genres", "year"]
    network = load_network(run)
    assert network.get_buffer("columns.0.codes")[:3].tolist() == [[0, 0], [2, 1], [1, 0]]  # odd and all, then all
    assert main(["publish", str(out), "--out", str(bundles)]) == 0
    manifest = read_bundle(bundles).manifest
    assert (manifest.name, manifest.inputs) == ("nova-bert", ("item_ids", "lengths", "exclude", "candidates", "k"))


def test_new_items_are_published_with_what_is_known_of_them(tmp_path, cycle_csv, items_csv):
    """Those whose features the network can read, at their place among the ids; the others are told apart by nothing."""
    out, new, bundles = tmp_path / "run", tmp_path / "new.csv", tmp_path / "bundles"
    fit = ["fit", "bert4rec-small", "--data", str(cycle_csv), "--items", str(items_csv), "--out", str(out), *SMALL]
    assert main([*fit, "--set", "model.id_dropout=0.2"]) == 0
    new.write_text("item,genres,year\na-new,odd|all,1999\ni05b,jazz,2001\nz-blank,jazz,\n")
    assert main(["publish", str(out), "--out", str(bundles), "--items", str(new)]) == 0
    bundle = read_bundle(bundles)
    old = [f"i{item:02}" for item in range(1, 13)]
    assert list(bundle.vocabulary.item_ids) == sorted(["a-new", "i05b", *old])
    assert bundle.counts[[0, 6]].tolist() == [0, 0]
    assert bundle.counts.sum() == Run.open(out).read_counts().sum()
    assert bundle.metadata
    assert json.loads(bundle.metadata[0]) == {"genres": ["odd", "all"], "year": 1999}
    assert json.loads(bundle.metadata[1]) == {"genres": ["odd", "all"], "year": 1991}
    new.write_text("item,genres,year\na new,odd,1999\n")
    assert main(["publish", str(out), "--out", str(bundles), "--items", str(new)]) == 2


def test_a_damaged_features_file_is_named(tmp_path, cycle_csv, items_csv):
    """One sentence, no traceback."""
    out = tmp_path / "run"
    assert (
        main(["fit", "bert4rec-small", "--data", str(cycle_csv), "--items", str(items_csv), "--out", str(out), *SMALL])
        == 0
    )
    (out / "features.json").write_text('[{"name": "genres"}]')
    with pytest.raises(Exception, match=r"features\.json is not what a run writes"):
        load_network(Run.open(out))

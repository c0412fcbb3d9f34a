"""Vectors of items from a file: read, checked, projected, and worth something to items that are never met."""

import json
import re
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from model.contract.vocabulary import Vocabulary
from training.cli import main
from training.data.split import leave_one_out
from training.errors import DataError, RecipeError
from training.evaluation.ranking import NetworkScorer
from training.fit.item_vectors import learn_item_start, place_vectors, project
from training.fit.ppmi import LENGTH
from training.logs.item_vectors import read_item_vectors
from training.logs.reader import read_log
from training.recipe import make_recipe
from training.runs.networks import load_network
from training.runs.run import Run

GROUPS, COMMON, RARE = 4, 8, 4
RECIPE = """
[model]
name = "sasrec"
max_length = 8
width = 16
layers = 1
[train]
device = "cpu"
epochs = 4
batch_size = 16
learning_rate = 5e-3
warmup_steps = 4
"""


def name_item(group, place):
    """Items of a group are common at first and then, from COMMON on, rare."""
    return f"g{group}-{'c' if place < COMMON else 'r'}{place:02}"


ITEMS = [name_item(group, place) for group in range(GROUPS) for place in range(COMMON + RARE)]


@pytest.fixture
def log(tmp_path):
    """Users of one group each, who end with a rare item that no training event has: it tests."""
    draw = np.random.default_rng(5)
    rows = ["user,item,timestamp"]
    for user in range(64):
        group = user % GROUPS
        walk = [*draw.permutation(COMMON)[:6], COMMON + user // GROUPS % RARE]
        rows += [f"u{user:02},{name_item(group, place)},{1000 + step}" for step, place in enumerate(walk)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def vectors(tmp_path):
    """Every item's group, turned into 20 numbers with noise, as Parquet; and an item that nobody has."""
    draw = np.random.default_rng(6)
    groups = np.repeat(np.eye(GROUPS), COMMON + RARE, axis=0) @ draw.standard_normal((GROUPS, 20))
    table = groups + 0.1 * draw.standard_normal(groups.shape)
    path = tmp_path / "vectors.parquet"
    pl.DataFrame({"item": [*ITEMS, "nobody"], "embedding": [*table.tolist(), [9.0] * 20]}).write_parquet(path)
    return path


def measure_order(path, log):
    """The share of pairs in which a rare item of the user's own group stands above one of another group."""
    run, found = Run.open(path), read_log(log, make_recipe({}).data, announce=False)
    scores = NetworkScorer(load_network(run)).score(leave_one_out(found).test.histories).numpy()
    rare = np.array(["-r" in item for item in run.vocabulary.item_ids])
    groups = np.array([int(item[1]) for item in run.vocabulary.item_ids])
    shares = []
    for user, row in enumerate(scores):
        own = groups == user % GROUPS
        shares.append((row[rare & own][:, None] > row[rare & ~own]).mean())
    return float(np.mean(shares))


def test_they_say_where_rare_items_belong(tmp_path, log, vectors):
    """The vectors know the groups: items that never trained stand above those of other groups, by chance without."""
    (tmp_path / "small.toml").write_text(RECIPE)
    fit = ["fit", str(tmp_path / "small.toml"), "--data", str(log), "--out"]
    assert main([*fit, str(tmp_path / "random")]) == 0
    assert main([*fit, str(tmp_path / "told"), "--item-vectors", str(vectors)]) == 0
    assert 0.3 < measure_order(tmp_path / "random", log) < 0.7
    assert measure_order(tmp_path / "told", log) > 0.95
    config = json.loads((tmp_path / "told" / "config.json").read_text())
    assert config["recipe"]["train"]["item_init"] == "vectors"
    told = config["item_vectors"]
    assert (told["file"], told["items"], told["size"]) == ("vectors.parquet", len(ITEMS), 20)
    assert told["sha256"] == read_item_vectors(vectors).sha256


def test_a_run_that_goes_on_needs_the_rows_that_it_holds(tmp_path, log, vectors, capsys):
    """Stopped before its first checkpoint and without the file, it begins as it would have; a lost one is named."""
    (tmp_path / "small.toml").write_text(RECIPE)
    fit = ["fit", str(tmp_path / "small.toml"), "--data", str(log), "--item-vectors", str(vectors), "--out"]
    tables = []
    for name in ("whole", "begun"):
        assert main([*fit, str(tmp_path / name)]) == 0
        if name == "begun":
            for lost in ("checkpoint/last.safetensors", "results.json", "metrics.jsonl"):
                (tmp_path / name / lost).unlink()
            vectors.unlink()
            assert main([*fit, str(tmp_path / name), "--resume"]) == 0
        tables.append(load_network(Run.open(tmp_path / name)).table)
    assert torch.equal(*tables)
    for lost in ("checkpoint/last.safetensors", "results.json", "item_vectors.npy"):
        (tmp_path / "begun" / lost).unlink()
    assert main([*fit, str(tmp_path / "begun"), "--resume"]) == 2
    assert "item_vectors.npy is missing" in capsys.readouterr().err


def test_vectors_are_projected_half_whitened_and_scaled():
    """As many components as the network is wide, uncorrelated, by the root of their size, as long as other starts."""
    draw = np.random.default_rng(1)
    given = (draw.standard_normal((200, 6)) * [9, 5, 3, 1, 0.5, 0.1] @ draw.standard_normal((6, 40)) + 7).astype(
        np.float32
    )
    found = project(given, 4)
    assert found.shape == (200, 4)
    sizes = np.linalg.svd(given - given.mean(axis=0), compute_uv=False)[:4]
    wanted = np.diag(sizes) / sizes[0] * (found[:, 0] @ found[:, 0])
    np.testing.assert_allclose(found.T @ found, wanted, atol=1e-3 * wanted[0, 0])
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-6)
    assert np.linalg.norm(found, axis=1).mean() == pytest.approx(LENGTH, rel=1e-5)
    wide = project(given, 16)
    assert wide[:, :6].any(axis=0).all()
    assert not wide[:, 6:].any()  # there are no more than six dimensions
    assert project(given[:, :3], 16).shape == (200, 3)
    assert not project(np.ones((5, 3), dtype=np.float32), 2).any()


def test_an_item_without_a_vector_begins_at_the_mean(tmp_path):
    """Its row is zero; ids that the log lacks count for nothing, and a file of none but those is refused."""
    np.savez(tmp_path / "some.npz", ids=np.array(["b", "a", "z"]), vectors=np.eye(3))
    given = read_item_vectors(tmp_path / "some.npz")
    start = place_vectors(given, Vocabulary(["a", "b", "c"]), 8)
    assert start.rows.shape == (3, 3)
    np.testing.assert_allclose(start.rows[0], -start.rows[1], atol=1e-6)
    assert start.rows[0].any()
    assert not start.rows[2].any()
    assert (start.description["items"], start.description["size"]) == (2, 3)
    with pytest.raises(DataError, match=re.escape("a vector of no item of the log: it has b, a, z, the log i1, i2")):
        place_vectors(given, Vocabulary(["i1", "i2"]), 8)


def test_both_forms_say_the_same(tmp_path):
    """Parquet with lists or arrays of any width of number, and .npz; ids may be numbers, and are encoded as asked."""
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    frames = {
        "lists": pl.DataFrame({"id": ["x y", "é"], "v": table.tolist()}),
        "arrays": pl.DataFrame({"sku": ["x y", "é"], "v": table.astype(np.float64), "title": ["X", "É"]}),
    }
    for name, frame in frames.items():
        frame.write_parquet(tmp_path / f"{name}.parquet")
        found = read_item_vectors(tmp_path / f"{name}.parquet", "percent")
        assert found.ids == ["x%20y", "%C3%A9"]
        assert np.array_equal(found.vectors, table)
    np.savez_compressed(tmp_path / "v.npz", ids=np.array([7, 12]), vectors=table.astype(np.float16))
    found = read_item_vectors(tmp_path / "v.npz")
    assert found.ids == ["7", "12"]
    assert np.array_equal(found.vectors, table)
    assert found.vectors.dtype == np.float32


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"item": ["a"], "v": [1.0]}, "no column of lists: it must have one, the vectors"),
        ({"item": ["a"], "v": [[1.0]], "w": [[1.0]]}, "has 2 columns of lists (v, w)"),
        ({"what": ["a"], "v": [[1.0]]}, "has no column 'item' or 'id', only what, v"),
        ({"item": ["a", "b"], "v": [[1.0], [1.0, 2.0]]}, "the same length and no empty place"),
        ({"item": ["a"], "v": [[1.0, None]]}, "the same length and no empty place"),
        ({"item": ["a"], "v": [["x"]]}, "the column v holds no numbers"),
        ({"item": ["a", "a"], "v": [[1.0], [2.0]]}, "two vectors of item 'a'"),
        ({"item": ["a", "b"], "v": [[1.0], [float("nan")]]}, "the vector of item 'b' holds what is no finite number"),
        ({"item": [None], "v": [[1.0]]}, "holds no vectors"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_table_is_said(tmp_path, columns, message):
    """In a sentence that names the file, and the item where there is one."""
    path = tmp_path / "v.parquet"
    pl.DataFrame(columns, schema_overrides={"item": pl.String} if "item" in columns else None).write_parquet(path)
    with pytest.raises(DataError, match=re.escape(message)):
        read_item_vectors(path)


def test_what_is_wrong_with_arrays_is_said(tmp_path):
    """Objects, which would run code, missing arrays, other shapes, files of another kind."""
    path = tmp_path / "v.npz"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"names": np.array(["a"]), "vectors": np.eye(1)}, "has no array 'ids', only names, vectors"),
        ({"ids": np.array(["a"], dtype=object), "vectors": np.eye(1)}, "cannot be read as NumPy's .npz"),
        ({"ids": np.array([1.5]), "vectors": np.eye(1)}, "ids must be one array of texts or whole numbers"),
        ({"ids": np.array(["a", "b"]), "vectors": np.eye(3)}, "a row for each of the 2 ids"),
    ]
    for arrays, message in cases:
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=re.escape(message)):
            read_item_vectors(path)
    for name in ("v.npz", "v.parquet", "v.csv"):
        (tmp_path / name).write_text("item,v\n")
        with pytest.raises(DataError, match=name):
            read_item_vectors(tmp_path / name)
    with pytest.raises(DataError, match="is not a file"):
        read_item_vectors(tmp_path / "absent.npz")


def test_the_flag_and_the_recipe_go_together(tmp_path):
    """A recipe that wants vectors wants the file; counters have nothing to begin."""
    vocabulary = Vocabulary(["a"])
    with pytest.raises(RecipeError, match="needs --item-vectors FILE"):
        learn_item_start(make_recipe({}, ["train.item_init=vectors"]), None, vocabulary)
    with pytest.raises(RecipeError, match=re.escape("goes with train.item_init = vectors, not ppmi")):
        learn_item_start(make_recipe({}, ["train.item_init=ppmi"]), tmp_path / "v.npz", vocabulary)
    counted = make_recipe({"model": {"name": "rules"}}, ["train.item_init=vectors"])
    with pytest.raises(RecipeError, match="rules counts a log"):
        learn_item_start(counted, tmp_path / "v.npz", vocabulary)
    assert learn_item_start(make_recipe({}), None, vocabulary) is None

"""Embeddings that begin with what counting knows: alike where items are near each other, and nothing made up."""

import numpy as np
import pytest
import torch

from model.nets.features import SideInformation
from model.nets.registry import make_network
from training.cli import main
from training.fit.ppmi import LENGTH, add_item_vectors, count_related, factorise_items
from training.runs.networks import load_network
from training.runs.run import Run

V = 12
TWO_GROUPS = [draw.permutation(6)[:4] + 1 + group for draw in [np.random.default_rng(0)] for group in (0, 6) * 40]


def test_items_that_are_near_each_other_begin_near_each_other(make_histories):
    """Two groups of items that no history mixes: within a group vectors agree, across they have nothing in common."""
    vectors = factorise_items(make_histories(TWO_GROUPS), V, 2, seed=1)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    likeness = np.abs(units @ units.T)
    same = np.arange(V)[:, None] // 6 == np.arange(V) // 6
    assert likeness[same].min() > 0.9
    assert likeness[~same].max() < 0.1
    assert np.linalg.norm(vectors, axis=1).mean() == pytest.approx(LENGTH, rel=1e-5)


def test_relatedness_is_pointwise_mutual_information(make_histories):
    """A log by hand: pairs at most three apart, by 1/s, over chance by frequencies to the power of 3/4."""
    related = count_related(make_histories([[1, 2], [1, 2], [3, 4, 1]]), 5).toarray()
    pairs = np.zeros((5, 5))
    for one, other, weight in ((0, 1, 2.0), (2, 3, 1.0), (3, 0, 1.0), (2, 0, 0.5)):
        pairs[one, other] += weight
        pairs[other, one] += weight
    totals = pairs.sum(axis=1)
    chances = totals**0.75 / (totals**0.75).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(pairs / np.outer(totals, chances))
    np.testing.assert_allclose(related, np.where(pairs > 0, np.maximum(information, 0), 0))


@pytest.mark.parametrize("rows", [[[1], [2]], [[3, 3]], [[1, 2]]], ids=str)
def test_logs_that_say_nothing_give_vectors_of_zeros(make_histories, rows):
    """Items without a neighbour, or all items, keep what was drawn for them; nothing is ever no number."""
    vectors = factorise_items(make_histories(rows), V, 8, seed=1)
    assert np.isfinite(vectors).all()
    assert not vectors[2:].any()


def test_vectors_are_added_to_items_alone():
    """PAD and [mask] keep what was drawn, and so does whatever a wide table has beyond the catalogue."""
    network = make_network("sasrec", item_count=3, user_count=1, side=SideInformation(), width=8, max_length=4)
    before = network.items.weight.detach().clone()
    add_item_vectors(network, np.ones((3, 2), dtype=np.float32))
    change = (network.items.weight - before).detach()
    torch.testing.assert_close(change[1:-1, :2], torch.ones(3, 2))
    assert not change[[0, -1]].any()
    assert not change[:, 2:].any()


def test_fit_begins_with_them(tmp_path, cycle_csv):
    """With a rate of next to nothing the kept weights are the ones that a run began with, the same for a seed."""
    settings = ["train.epochs=1", "train.learning_rate=1e-9", "train.weight_decay=0.0", "model.name=sasrec"]
    tables = {}
    for name, start in (("one", "ppmi"), ("two", "ppmi"), ("random", "random")):
        command = ["fit", "bert4rec-small", "--data", str(cycle_csv), "--out", str(tmp_path / name)]
        for setting in (*settings, f"train.item_init={start}"):
            command += ["--set", setting]
        assert main(command) == 0
        tables[name] = load_network(Run.open(tmp_path / name)).table
    assert torch.equal(tables["one"], tables["two"])
    assert tables["one"].norm(dim=1).mean() > 3 * tables["random"].norm(dim=1).mean()

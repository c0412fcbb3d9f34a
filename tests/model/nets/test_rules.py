"""Rules beside a network: shares that a person can work out, and a graph that adds what PyTorch adds."""

import math

import numpy as np
import pytest
import torch

from model.contract.sequence import encode_histories
from model.export.graph import export_network
from model.export.parity import ExportError, check_parity, make_golden
from model.nets.rules import DECAY, FLOOR, WINDOW, SequentialRules


def make_random(item_count, size, strength, seed=0):
    """Rules of random followers, fewer than `size` for some items."""
    draw = np.random.default_rng(seed)
    rules = SequentialRules(item_count, size)
    for item in range(1, item_count + 1):
        count = draw.integers(0, size + 1)
        rules.followers[item, :count] = torch.from_numpy(draw.permutation(item_count)[:count].astype(np.int32) + 1)
        rules.weights[item, :count] = torch.from_numpy(draw.random(count).astype(np.float32))
    rules.strength.fill_(strength)
    return rules


@pytest.fixture
def with_rules(make_small):
    """A maker of small networks with random rules."""

    def make(name, strength, **switches):
        network = make_small(name, **switches)
        network.rules = make_random(network.item_count, 9, strength)
        return network

    return make


@pytest.fixture(scope="module")
def histories():
    """Item indexes, from an empty history to three windows of rules, each with neighbours of other lengths."""
    draw = np.random.default_rng(3)
    return [draw.integers(1, 61, size=size).tolist() for size in (0, 1, 2, 5, 11, 12, WINDOW, 3 * WINDOW)]


def lift(rules, *histories, max_length=200):
    """What rules say after histories of item indexes (B, V + 2)."""
    item_ids, _ = encode_histories(histories, max_length=max_length, mask_index=len(rules.weights) - 1)
    return rules.lift(torch.from_numpy(item_ids)).numpy()


def test_shares_worked_out_by_hand():
    """Item 1 leads to 2 and 3, item 2 to 3 alone; the older of two items weighs 0.7."""
    rules = SequentialRules(3, 2)
    rules.followers[1] = torch.tensor([2, 3])
    rules.weights[1] = torch.tensor([3.0, 1.0])
    rules.followers[2, 0], rules.weights[2, 0] = 3, 2.0
    shares = np.array([0, 0, 0.7 * 3, 0.7 * 1 + 2, 0]) / (0.7 * 4 + 2)
    np.testing.assert_allclose(lift(rules, [1, 2])[0], np.log1p(shares / 1e-6), rtol=1e-6)
    np.testing.assert_allclose(lift(rules, [1])[0], np.log1p(np.array([0, 0, 0.75, 0.25, 0]) / 1e-6), rtol=1e-6)
    assert not lift(rules, [3], []).any()  # no rules, no history


def test_shares_are_the_plain_double_loop(histories):
    """Batched, padded and cut to the window, the module says what a loop over items and rules says."""
    rules = make_random(60, 9, 1.0)
    for row, history in zip(lift(rules, *histories), histories, strict=True):
        sums = np.zeros(62)
        for age, item in enumerate(reversed(history[-WINDOW:])):
            for follower, weight in zip(rules.followers[item].tolist(), rules.weights[item].tolist(), strict=True):
                sums[follower] += DECAY**age * weight
        total = sums.sum()
        expected = [math.log1p(value / total / FLOOR) if total else 0.0 for value in sums]
        np.testing.assert_allclose(row, expected, atol=1e-4)
        assert row[0] == row[-1] == 0


@pytest.mark.parametrize("name", ["bert4rec", "sasrec"])
def test_strength_0_is_the_network(make_small, with_rules, ask, histories, name):
    """Rules that count nothing change no bit, others do; an empty history has none."""
    alone = ask(make_small(name), *histories)
    assert torch.equal(ask(with_rules(name, 0.0), *histories), alone)
    ruled = ask(with_rules(name, 0.5), *histories)
    assert torch.equal(ruled[0], alone[0])
    assert (ruled[1:] - alone[1:]).amax(dim=1).min() > 0.1
    assert (ruled >= alone).all()


@pytest.mark.parametrize(("name", "max_length"), [("bert4rec", 2), ("bert4rec", 12), ("sasrec", 40)])
def test_graph_answers_as_the_network_with_rules(with_rules, vocabulary, histories, name, max_length):
    """Alone and batched, with exclusion and candidates, windows shorter and longer than that of the rules."""
    network = with_rules(name, 1.2, max_length=max_length, layers=1)
    asked = [vocabulary.decode(history) for history in histories]
    examples = make_golden(network, vocabulary, asked)
    check_parity(export_network(network), examples, vocabulary, max_length=max_length)
    network.rules.strength.fill_(0.0)
    assert make_golden(network, vocabulary, asked) != examples


def test_rules_are_added_by_the_plain_scan_alone(with_rules):
    """Another one is refused by a sentence that names it."""
    with pytest.raises(ExportError, match="publish with --item-scoring plain"):
        export_network(with_rules("sasrec", 1.0), scan="int8")

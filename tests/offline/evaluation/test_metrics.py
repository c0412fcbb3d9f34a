"""Metrics against numbers worked by hand."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.bootstrap import estimate_intervals
from training.evaluation.metrics import (
    UNLISTED,
    average,
    measure_coverage,
    measure_gain,
    measure_hits,
    measure_popularity,
    measure_ranks,
    measure_reciprocal,
)


def _ranks(greater: int, ties: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([greater]), np.array([ties])


@pytest.mark.parametrize(
    ("greater", "hit", "gain", "reciprocal"),
    [
        (0, 1, 1.0, 1.0),
        (1, 1, 0.6309297535714575, 0.5),
        (2, 1, 0.5, 1 / 3),
        (9, 1, 0.2890648263178879, 0.1),
        (10, 0, 0.0, 1 / 11),
        (99, 0, 0.0, 0.01),
        (UNLISTED, 0, 0.0, 0.0),
    ],
)
def test_metrics_without_ties_are_the_textbook_ones(greater, hit, gain, reciprocal):
    """HR@10, NDCG@10 and MRR of a target at a known place, worked by hand at n and n + 1."""
    assert measure_hits(*_ranks(greater, 0), 10)[0] == hit
    assert measure_gain(*_ranks(greater, 0), 10)[0] == pytest.approx(gain, abs=1e-12)
    assert measure_reciprocal(*_ranks(greater, 0))[0] == pytest.approx(reciprocal)


def test_a_constant_scorer_gets_what_chance_gives():
    """All of 101 candidates tied: HR@10 is 10/101, neither 1 nor 0, and MRR the mean of 1/place."""
    assert measure_hits(*_ranks(0, 100), 10)[0] == pytest.approx(10 / 101)
    assert measure_hits(*_ranks(0, 100), 1)[0] == pytest.approx(1 / 101)
    assert measure_gain(*_ranks(0, 100), 10)[0] == pytest.approx(4.543559338088345 / 101)
    assert measure_reciprocal(*_ranks(0, 100))[0] == pytest.approx(sum(1 / place for place in range(1, 102)) / 101)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 7))
def test_ties_take_the_mean_over_every_order_of_equals(scores, k):
    """Expected values equal the average over all tie-breaking permutations, tried one by one."""
    target = scores[0]
    greater = sum(score > target for score in scores)
    ties = sum(score == target for score in scores) - 1
    places = [
        sorted(range(len(scores)), key=lambda i: (-scores[i], order[i])).index(0)
        for order in permutations(range(len(scores)))
    ]
    assert measure_hits(*_ranks(greater, ties), k)[0] == pytest.approx(np.mean([place < k for place in places]))
    gains = [1 / np.log2(place + 2) if place < k else 0 for place in places]
    assert measure_gain(*_ranks(greater, ties), k)[0] == pytest.approx(np.mean(gains))
    assert measure_reciprocal(*_ranks(greater, ties))[0] == pytest.approx(np.mean([1 / (p + 1) for p in places]))


def test_one_place_makes_hit_and_gain_the_same():
    """NDCG@1 is HR@1, ties or not."""
    values = measure_ranks(np.array([0, 0, 1, 5]), np.array([0, 3, 2, 0]))
    assert np.array_equal(values["NDCG@1"], values["HR@1"])
    assert values["HR@1"].tolist() == [1.0, 0.25, 0.0, 0.0]


def test_averages_are_over_users():
    """Every user counts the same."""
    assert average(measure_ranks(np.array([0, 100]), np.array([0, 0])))["HR@10"] == 0.5


def test_coverage_counts_items_that_are_on_any_list():
    """Three of six items are listed, one of them twice; places without an item count for nothing."""
    assert measure_coverage(np.array([[1, 2], [2, 6], [0, 0]]), 6) == 0.5


def test_popularity_is_the_mean_over_a_list():
    """Worked by hand; a short list counts what it has, an empty one is as good as blind."""
    popularity = np.array([1.0, 0.5, 0.0])
    assert measure_popularity(np.array([[1, 2], [3, 0], [0, 0]]), popularity).tolist() == [0.75, 0.0, 0.5]


def test_bootstrap_intervals_agree_with_theory():
    """A mean of 400 coin tosses: 1.96 standard errors to both sides, columns apart, the same for the same seed."""
    values = np.stack([np.tile([0.0, 1.0], 200), np.full(400, 0.25)], axis=1)
    low, high = estimate_intervals(values, seed=1)
    assert (low[1], high[1]) == (0.25, 0.25)
    assert low[0] == pytest.approx(0.5 - 1.96 * 0.025, abs=0.006)
    assert high[0] == pytest.approx(0.5 + 1.96 * 0.025, abs=0.006)
    again = estimate_intervals(values, seed=1)
    assert np.array_equal(again, (low, high))
    assert not np.array_equal(estimate_intervals(values, seed=2)[0], low)


def test_bootstrap_draws_users_whatever_groups_they_form():
    """Distinct values, drawn singly and in chunks of any size, have the spread of a mean of independent users."""
    values = np.random.default_rng(0).exponential(size=(1000, 1))
    low, high = estimate_intervals(values, seed=3)
    wide = 2 * 1.96 * values.std() / np.sqrt(1000)
    assert high[0] - low[0] == pytest.approx(wide, rel=0.1)
    assert low[0] < values.mean() < high[0]


def test_no_users_have_no_interval():
    """Nothing to draw from is an error, not a NaN."""
    with pytest.raises(ValueError, match="no users"):
        estimate_intervals(np.zeros((0, 2)), seed=1)

"""A new champion whose engine fails at once is told from one that is well, hardly asked, or older than a minute."""

import pytest

from service.recommend.first_runs import LEAST_RUNS, WATCHED_S, FirstRuns


@pytest.fixture
def runs(clock):
    """Those of a champion that has just been swapped in."""
    runs = FirstRuns(clock=clock)
    runs.begin()
    return runs


def test_half_of_twenty_are_enough(runs):
    """The twentieth tells."""
    for number in range(LEAST_RUNS - 1):
        runs.record(failed=number % 2 == 0)
        assert not runs.failing
    runs.record(failed=True)
    assert runs.failing
    for _ in range(10 * LEAST_RUNS):
        runs.record(failed=False)
    assert (runs.failing, runs.runs) == (True, LEAST_RUNS)


def test_fewer_failures_are_the_engines_own(runs):
    """Nine of twenty, and so on."""
    for number in range(10 * LEAST_RUNS):
        runs.record(failed=number % 20 >= 11)
    assert not runs.failing


def test_after_a_minute_nothing_counts(runs, clock):
    """Until the next swap."""
    for _ in range(LEAST_RUNS - 1):
        runs.record(failed=True)
    clock.now_s += WATCHED_S
    runs.record(failed=True)
    assert not runs.failing
    runs.begin()
    for _ in range(LEAST_RUNS):
        runs.record(failed=True)
    assert runs.failing


def test_who_was_not_swapped_in_is_not_watched(clock):
    """The model that a worker started with."""
    runs = FirstRuns(clock=clock)
    for _ in range(LEAST_RUNS):
        runs.record(failed=True)
    assert not runs.failing

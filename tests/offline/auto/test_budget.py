"""The minutes are shared out so that validation and tests are inside them."""

import time
from dataclasses import replace

import pytest

from training.auto.budget import Costs, count_tested, describe_plan, format_seconds, share_out
from training.auto.clock import Clock
from training.auto.speeds import ASKING_SHARE, LEAST_TESTED, count_counters
from training.data.split import leave_one_out

COSTS = Costs(epoch=10.0, network=0.001, ranking=0.0005, rules=0.002, counters=0.01, weights_tried=14)
SIZES = {"epochs": 30, "validation_users": 50_000, "test_users": 50_000}


@pytest.mark.parametrize("total", [60.0, 600.0, 6000.0])
@pytest.mark.parametrize("slower", [1, 30])
def test_everything_fits(total, slower):
    """Training, its validations, mixing, and tests together take what is left at most."""
    slowest = 6 * ASKING_SHARE * total / LEAST_TESTED  # slower counters are left out
    costs = replace(COSTS, epoch=10.0 * slower, counters=min(0.01 * slower, slowest))
    plan = share_out(total=total, elapsed=0.1 * total, costs=costs, **SIZES)
    assert plan.train_seconds + plan.end_seconds + 0.1 * total <= 1.01 * total
    assert plan.seconds <= 1.01 * total
    assert plan.train_seconds >= 0.2 * total
    assert plan.epochs * (costs.epoch + plan.validation_users * costs.network) <= 1.01 * plan.train_seconds


def test_nobody_is_asked_who_is_not_there():
    """Small logs ask all of their users, and stop when the epochs are done."""
    plan = share_out(
        total=600, elapsed=1, costs=replace(COSTS, epoch=0.1), epochs=30, validation_users=24, test_users=9
    )
    assert (plan.validation_users, plan.test_users) == (24, 9)
    assert plan.epochs == 30
    assert plan.seconds < 30


def test_late_training_leaves_fewer_to_test():
    """As many as there is time for, but never fewer than a few hundred, and never more than planned."""
    plan = share_out(total=600, elapsed=10, costs=COSTS, **SIZES)
    assert count_tested(plan, COSTS, plan.end_seconds) == pytest.approx(plan.test_users, rel=0.2)
    assert count_tested(plan, COSTS, 0.4 * plan.end_seconds) < 0.6 * plan.test_users
    assert count_tested(plan, COSTS, 0) == LEAST_TESTED
    assert count_tested(plan, COSTS, 10_000) == plan.test_users


def test_it_is_foretold():
    """With advice where not even two epochs fit, and the reason for each counter that is left out."""
    plan = share_out(total=60, elapsed=10, costs=replace(COSTS, epoch=300), **SIZES)
    text = describe_plan(plan, 60, {"item-knn": "it takes 40 ms a question"})
    for part in ("of the 60 s allowed", "of an epoch", "More minutes", "item-knn is left out: it takes 40 ms"):
        assert part in text
    assert [format_seconds(seconds) for seconds in (3.4, 89, 150, 600)] == ["3 s", "89 s", "2 minutes", "10 minutes"]


def test_what_is_quick_to_count_is_always_counted(make_log, cycles):
    """However little time there is; neighbours are left out, with the reason."""
    log = make_log(cycles)
    late = Clock(1.0, begun=time.monotonic() - 1000)
    found = count_counters(["pop", "markov", "rules", "item-knn", "session-knn"], log, leave_one_out(log), late)
    assert found.left_out.keys() >= {"item-knn", "session-knn"}
    assert "no time was left" in found.left_out["item-knn"]
    assert found.counting.keys() == {"pop", "markov", "rules"}

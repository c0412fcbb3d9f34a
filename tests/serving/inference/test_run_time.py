"""How long a run will take, by the slowest of the last ones."""

import math

from service.inference.run_time import RunTimeEstimator


def test_nothing_is_known_before_there_were_enough_runs():
    """Seven runs say nothing, the eighth says what the slowest took."""
    pace = RunTimeEstimator()
    for number in range(7):
        pace.record(1, 0.001 * number)
    assert pace.predict_s(1) == math.inf
    pace.record(1, 0.002)
    assert pace.predict_s(1) == 0.006


def test_runs_of_other_sizes_say_nothing():
    """Rows count by powers of two: 5 to 7 rows are alike, 8 are not."""
    pace = RunTimeEstimator()
    for _ in range(8):
        pace.record(5, 0.003)
    assert pace.predict_s(7) == 0.003
    assert pace.predict_s(8) == pace.predict_s(3) == math.inf


def test_a_slow_run_counts_until_eight_others_followed():
    """One stall keeps runs off the loop for a while, not for ever."""
    pace = RunTimeEstimator()
    for seconds in (9.0, *[0.001] * 7):
        pace.record(1, seconds)
    assert pace.predict_s(1) == 9.0
    pace.record(1, 0.001)
    assert pace.predict_s(1) == 0.001


def test_a_failure_takes_all_that_was_known():
    """After it every size has to show again that it is quick."""
    pace = RunTimeEstimator()
    for _ in range(8):
        pace.record(1, 0.001)
        pace.record(2, 0.001)
    pace.reset()
    assert pace.predict_s(1) == pace.predict_s(2) == math.inf

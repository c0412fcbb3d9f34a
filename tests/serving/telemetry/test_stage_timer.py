"""Laps have no gap: the stages of a request are its whole time."""

import time

import pytest

from service.telemetry.metrics import Metrics
from service.telemetry.stage_timer import STAGES, StageTimer


def test_laps_are_the_whole_time():
    """However often a stage comes up, and whatever is between two laps."""
    timer = StageTimer()
    for stage in ("encode", "queue", "history", "encode", "queue", "inference"):
        time.sleep(0.002)
        timer.record(stage)
    time.sleep(0.002)
    whole = timer.stop()
    assert sum(timer.stage_seconds.values()) == pytest.approx(whole, rel=1e-9)
    assert set(timer.stage_seconds) == set(STAGES)
    assert timer.stage_seconds["encode"] >= 0.004


def count_stages(code, stages):
    """The counts and the seconds of the stages that one request adds."""
    metrics = Metrics(event_types=["view"], model_version="v", routes=[("/recommend", "POST")])
    timer = StageTimer()
    for stage in stages:
        timer.record(stage)
    metrics.request_ended(route="/recommend", method="POST", code=code, timer=timer)
    metrics.flush()
    samples = dict(line.rsplit(" ", 1) for line in metrics.expose().decode().splitlines() if line[0] != "#")
    name, request = "nextitem_stage_duration_seconds", "nextitem_http_request_duration_seconds_sum"
    counts = [float(samples[f'{name}_count{{stage="{stage}"}}']) for stage in STAGES]
    seconds = sum(float(samples[f'{name}_sum{{stage="{stage}"}}']) for stage in STAGES)
    return counts, seconds, float(samples[f'{request}{{code="{code}",method="POST",route="/recommend"}}'])


def test_every_answer_counts_in_every_stage():
    """A cold start skips the model, but means add up only over the same requests."""
    counts, seconds, whole = count_stages(200, ["encode", "queue", "history", "encode"])
    assert counts == [1] * len(STAGES)
    assert seconds == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize(("code", "stages"), [(409, ["encode", "queue", "history"]), (422, []), (499, ["history"])])
def test_what_was_not_answered_counts_in_no_stage(code, stages):
    """Nor do requests of other routes, which never come by the history."""
    counts, seconds, whole = count_stages(code, stages)
    assert (counts, seconds) == ([0] * len(STAGES), 0)
    assert whole > 0

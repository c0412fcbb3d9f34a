"""What the measurements of a bad day rely on: an engine that falls ill as it is told, and a judge of overload."""

import asyncio

import httpx
import pytest

from benchmarks.harness.open_loop import Outcome
from benchmarks.harness.processes import ServiceProcess
from benchmarks.reliability.overload import Step, judge, judge_crowd


@pytest.mark.timeout(120)
def test_engine_falls_ill_and_recovers(folder, store, bundle):
    """It raises, answers NaN, takes long and is well again; each shows in the answer."""
    fault_file = folder / "fault"

    async def run():
        options = ("--fault-file", str(fault_file))
        service = ServiceProcess(
            store.url, bundle, folder / "service.log", *options, module="benchmarks.harness.faulty_engine"
        )
        await service.start()
        found = []
        async with httpx.AsyncClient(base_url=service.url, timeout=120) as http:
            for state, timeout_ms in (("", 2000), ("raise", 2000), ("nan", 2000), ("slow 0.2", 100), ("", 2000)):
                fault_file.write_text(state)
                answer = (await http.post("/recommend", json={"items": ["i01"], "timeout_ms": timeout_ms})).json()
                found.append((answer["source"], answer["degraded"]))
        await service.stop()
        return found

    ill = ("popular", "engine_unavailable")
    assert asyncio.run(run()) == [("model", None), ill, ill, ("popular", "deadline"), ("model", None)]


def step(modelled, *, refused_events=0, unanswered=0):
    """A second in which so many questions were answered by the model."""
    asks = [Outcome("ask", 0, 0, 0, 200, "model", "")] * modelled + [Outcome("ask", 0, 0, 0, 0, "", "")] * unanswered
    sends = [Outcome("send", 0, 0, 0, 503, "", "")] * refused_events
    return Step(rate=80, seconds=1, asks=asks, sends=sends)


@pytest.mark.parametrize(
    ("flood", "status"),
    [(step(64), 0), (step(63), 1), (step(80, refused_events=1), 1), (step(80, unanswered=1), 1), (step(0), 1)],
)
def test_overload_is_judged(flood, status):
    """Four fifths of the best rate, no event refused, no question left alone."""
    assert judge([step(80), step(70), flood]) == status


@pytest.mark.parametrize(
    ("modelled", "batch_status", "batch_s", "status"),
    [(4, 200, 0.6, 0), (4, 503, 0.1, 0), (3, 200, 0.1, 1), (4, 0, 0.1, 1), (4, 200, 0.7, 1)],
)
def test_load_beside_batches_is_judged(modelled, batch_status, batch_s, status):
    """Four of five lone questions, and an answer to every batch nearly in time, be it that there is no room."""
    asks = [Outcome("ask", 0, 0, 0, 200, "model", "")] * modelled
    asks += [Outcome("ask", 0, 0, 0, 200, "popular", "deadline")] * (5 - modelled)
    batches = [Outcome("many", 0, 0, batch_s, batch_status, "", "")]
    assert judge_crowd(Step(rate=5, seconds=1, asks=asks, sends=[], batches=batches)) == status


def test_answers_of_the_model_without_a_history_are_no_goodput():
    """A model that answers degraded did not do its work."""
    degraded = Outcome("ask", 0, 0, 0, 200, "model", "deadline")
    assert Step(rate=1, seconds=1, asks=[degraded], sends=[]).goodput == 0

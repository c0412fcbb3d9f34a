"""Tune the batching of a framework: measure every setting of a small grid.

LitServe waits for a batch to be filled; BentoML decides that itself, from how long an answer may take.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

from benchmarks.serving.roster import System
from benchmarks.serving.rounds import Plan, RunningSystem, take_turn
from benchmarks.serving.servers import Server
from benchmarks.serving.systems.orders import Batching

GRIDS = {
    "litserve": (Batching(1, 0.0), *(Batching(rows, wait_s) for rows in (8, 16) for wait_s in (0.0, 0.001, 0.005))),
    "bentoml": (Batching(1, 0.0), *(Batching(rows, wait_s) for rows in (8, 16) for wait_s in (1.0, 60.0))),
}
"""By kind of system. 16 connections ask, so that no more rows are ever there."""
TURNS = 3


class Tried(NamedTuple):
    """A setting, and the median of what it did in closed loops."""

    rows: int
    wait_s: float
    rate: float
    failed: int


def try_settings(
    system: System,
    serve: Callable[[Batching], AbstractContextManager[Server]],
    payloads: Sequence[bytes],
    plan: Plan,
) -> Iterator[Tried]:
    """Every setting of the system's grid in closed loops: a turn a round, TURNS at most. Raises ServerFailed."""
    for batching in GRIDS[system.kind]:
        with serve(batching) as server:
            load = partial(RunningSystem(system, server, payloads).run_closed, connections=plan.connections)
            found = [take_turn(load, system.name, {}, plan.seconds) for _ in range(min(TURNS, plan.rounds))]
        rate = statistics.median(turn["rate"] for turn in found)
        yield Tried(*batching, rate, sum(turn["failed"] for turn in found))


def choose(tried: Sequence[Tried]) -> Batching:
    """The setting with the highest rate, of those without failed requests if there are any."""
    sound = [found for found in tried if found.rate and not found.failed]
    best = max(sound or tried, key=lambda found: found.rate)
    return Batching(best.rows, best.wait_s)

"""Rounds of turns. A turn measures one system under one kind of load, with the CPU time of all processes."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.closed_loop import Sample, drive_closed, drive_open, judge_http
from benchmarks.harness.cpu_time import count_cpu
from benchmarks.harness.open_loop import plan
from benchmarks.serving.roster import ONNX_RUNTIME, System
from benchmarks.serving.servers import Server

OPEN_CONNECTIONS = 64
WARM_SHARE = 0.2
"""Of a turn's seconds, under the same load before anything counts."""
LEAST = 100
"""Whoever is too slow to answer so often gets longer turns, up to MOST times."""
MOST = 4

Turn = dict[str, Any]
"""What came of a turn, by name."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long, how often, and how many connections a closed loop has."""

    rounds: int
    seconds: float
    connections: int
    environments: Path


@dataclass(frozen=True)
class RunningSystem:
    """A running system and the requests that it gets, in turn."""

    system: System
    server: Server
    payloads: Sequence[bytes]

    def run_closed(self, seconds: float, connections: int) -> Sample:
        judge = judge_http(self.system.mark)
        payloads = itertools.cycle(self.payloads)
        return drive_closed(self.server.connect, payloads, judge, connections=connections, seconds=seconds)

    def run_open(self, seconds: float, rate: float) -> Sample:
        judge = judge_http(self.system.mark)
        shots = plan(self.payloads, rate=rate, seconds=seconds)
        return drive_open(self.server.connect, shots, judge, connections=OPEN_CONNECTIONS, seconds=seconds)


class Account:
    """CPU seconds of this process (the load generator), of the system under test, of the store and of idle systems."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._before = self._count()

    def settle(self, name: str, seconds: float) -> dict[str, float]:
        """What each used since the beginning, in cores: 1.0 is one core all the time."""
        used = {who: (after - self._before[who]) / seconds for who, after in self._count().items()}
        cores = {"generator": used.pop("generator"), "store": used.pop("store", 0.0), "server": used.pop(name, 0.0)}
        if name == ONNX_RUNTIME:  # it runs in the generator's process
            cores |= {"generator": 0.0, "server": cores["generator"]}
        return cores | {"idle contestants": sum(used.values())}

    def _count(self) -> dict[str, float]:
        counts = {who: count_cpu(process_id) for who, process_id in self._processes.items()}
        times = os.times()
        return counts | {"generator": times.user + times.system}


def take_turn(
    load: Callable[[float], Sample], name: str, processes: Mapping[str, int], seconds: float
) -> dict[str, Any]:
    """Warm up, then measure, for longer where answers are few: what came of it as numbers."""
    warm = load(WARM_SHARE * seconds)
    needed_s = LEAST * warm.seconds / len(warm.latencies) if warm.latencies else float("inf")
    account = Account(processes)
    sample = load(min(max(seconds, needed_s), MOST * seconds))
    cores = account.settle(name, sample.seconds)
    cpu_us = 1e6 * (cores["server"] + cores["store"]) / sample.rate if sample.rate else None
    return {"contestant": name, "seconds": sample.seconds, **sample.describe(), "cpu_us": cpu_us, "cores": cores}


def rotate(names: Sequence[str], number: int) -> Iterator[str]:
    """All of them, beginning with another one in every round."""
    start = number % len(names)
    return iter([*names[start:], *names[:start]])

"""The clock that measures every system, and the lines that report the result.

A *real token* is an item, masked or not, in a sample that the network is trained on; padding is none. It is counted
alike for all: places of the input that hold something, each time that they pass through the network.
"""

import json
import os
import resource
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import torch

from benchmarks.harness.cpu_time import count_cpu
from benchmarks.training.terms import Material, Terms, read_task
from training.evaluation.metrics import average
from training.evaluation.ranking import Scorer, evaluate

Report = Callable[[dict[str, Any]], None]
_REPORT_EVERY_S = 5.0
_MEASURED = ("HR@10", "NDCG@10")


def count_own_cpu() -> float:
    """CPU seconds of this process's threads and of the processes that it began and that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def count_living() -> float:
    """CPU seconds so far of the processes that descend from this one and have not ended."""
    return max(0.0, count_cpu(os.getpid()) - time.process_time())


class Enough(Exception):
    """Ends a peer's training from inside a callback."""


@dataclass
class Count:
    """What was trained, and what it took. CPU time is user and system time of all threads."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


class Meter:
    """Counts to the end of a step; what happens in a pause does not count.

    With marks it counts from `began` on and measures the metrics whenever a mark has passed, otherwise from the end of
    the warm-up.
    """

    def __init__(
        self,
        terms: Terms,
        report: Report,
        *,
        measure: Callable[[], dict[str, Any]] = dict,
        began: tuple[float, float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = count_own_cpu,
        count_others: Callable[[], float] = count_living,
    ) -> None:
        self._terms, self._report, self._measure = terms, report, measure
        self._clock, self._cpu_clock, self._count_others = clock, cpu_clock, count_others
        self._warm = 0 if terms.marks else terms.warm_steps
        self._reported, self._passed = 0.0, 0
        self.count = Count()
        self.checks: list[dict[str, Any]] = []
        """The count at each mark that was passed, and what was measured there."""
        self._last = began or (clock(), cpu_clock())

    def start(self) -> None:
        self._last = (self._clock(), self._cpu_clock())

    def step(self, tokens: int) -> bool:
        """Take note of a step that just ended. True: enough."""
        if self._warm:
            self._warm -= 1
            self.start()
            return False
        self._add_time()
        count = self.count
        count.steps, count.tokens = count.steps + 1, count.tokens + tokens
        if count.seconds - self._reported >= _REPORT_EVERY_S:
            self._reported = count.seconds
            self._report({"event": "step", **asdict(count)})
        return self._pass_marks() if self._terms.marks else count.seconds >= self._terms.seconds

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time in here is not training."""
        self._add_time()
        yield
        self.start()

    def finish(self) -> None:
        """Measure what was trained since the last mark, where a system ended before the last one."""
        if self._terms.marks and (not self.checks or self.checks[-1]["steps"] < self.count.steps):
            self._check()

    def _add_time(self) -> None:
        if not self._warm:
            now, cpu_now = self._clock(), self._cpu_clock()
            self.count.seconds += now - self._last[0]
            self.count.cpu_seconds += cpu_now - self._last[1]
            self._last = now, cpu_now

    def _pass_marks(self) -> bool:
        """Measure once for all marks that the last step has passed. True after the last mark."""
        passed = bisect_right(self._terms.marks, self.count.cpu_seconds)
        if passed > self._passed:
            self._passed = passed
            self._check()
        return passed == len(self._terms.marks)

    def _check(self) -> None:
        with self.pause():
            others = self._count_others()
            check = {**asdict(self.count), **self._measure()}
        check["cpu_seconds"] += others
        self.checks.append(check)
        self._report({"event": "check", **check})


def run_system(name: str, package: str, train_system: Callable[[Terms, Material, "Entry"], None]) -> None:
    """Run one system on the task in the folder that the command line names; its own output goes to stderr."""
    lines, sys.stdout = sys.stdout, sys.stderr
    terms, material = read_task(Path(sys.argv[1]))
    torch.set_num_threads(terms.threads)
    entry = Entry(terms, material, lines)
    train_system(terms, material, entry)
    entry.meter.finish()
    entry.report(
        {
            "event": "end",
            "contestant": name,
            "version": version(package),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "niceness": os.nice(0),
            **entry.sizes,
            **asdict(entry.meter.count),
            "prepare_seconds": entry.prepare_seconds,
            "prepare_cpu_seconds": entry.prepare_cpu_seconds,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "checks": entry.meter.checks,
        }
    )


class Entry:
    """A system's side of the measurement: it says when training begins, and gets the meter."""

    def __init__(self, terms: Terms, material: Material, lines: TextIO) -> None:
        self._terms, self._material, self._lines = terms, material, lines
        self.start_clock()
        self.prepare_seconds = self.prepare_cpu_seconds = 0.0
        self.sizes: dict[str, int] = {}
        self.meter = Meter(terms, self.report)

    def start_clock(self) -> None:
        """Preparation begins here: once more after what only the comparison wants."""
        self._began = time.perf_counter(), count_own_cpu()

    def report(self, document: dict[str, Any]) -> None:
        """Write a line for the driver."""
        self._lines.write(json.dumps(document) + "\n")
        self._lines.flush()

    def begin(self, scorer: Scorer, *, samples: int, tokens: int) -> Meter:
        """Everything is prepared: an epoch has so many samples and real tokens. Returns the running meter."""
        self.prepare_seconds = time.perf_counter() - self._began[0]
        self.prepare_cpu_seconds = count_own_cpu() - self._began[1]
        self.sizes = {"epoch_samples": samples, "epoch_tokens": tokens}
        asked = {"validation": self._material.questions, "test": self._material.test}

        def measure() -> dict[str, Any]:
            found = {name: average(evaluate(scorer, questions)) for name, questions in asked.items()}
            return {name: {metric: metrics[metric] for metric in _MEASURED} for name, metrics in found.items()}

        self.meter = Meter(self._terms, self.report, measure=measure, began=self._began if self._terms.marks else None)
        return self.meter

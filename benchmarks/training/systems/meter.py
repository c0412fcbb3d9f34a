"""The clock that measures every system, and the lines that report the result.

A *real token* is an item, masked or not, in a sample that the network is trained on; padding is none. It is counted
alike for all: places of the input that hold something, each time that they pass through the network.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import torch

from benchmarks.training.terms import Material, Terms, read_task
from training.evaluation.ranking import Scorer, evaluate

Report = Callable[[dict[str, Any]], None]
_REPORT_EVERY_S = 5.0


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
    """Counts from the end of the warm-up to the end of a step; what happens in a pause does not count."""

    def __init__(
        self,
        terms: Terms,
        report: Report,
        *,
        validate: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._terms, self._report, self._validate = terms, report, validate
        self._clock, self._cpu_clock = clock, cpu_clock
        self._warm = 0 if terms.target is not None else terms.warm_steps  # to reach a target, every step counts
        self._reported = self._checked = 0.0
        self.count = Count()
        self.checks: list[tuple[float, float, float]] = []
        """Seconds, CPU seconds and NDCG@10 of each validation."""
        self._last = (clock(), cpu_clock())

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
        return self._reaches_target() or count.seconds >= self._terms.seconds

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time in here is not training."""
        self._add_time()
        yield
        self.start()

    def _add_time(self) -> None:
        if not self._warm:
            now, cpu_now = self._clock(), self._cpu_clock()
            self.count.seconds += now - self._last[0]
            self.count.cpu_seconds += cpu_now - self._last[1]
            self._last = now, cpu_now

    def _reaches_target(self) -> bool:
        target, seconds = self._terms.target, self.count.seconds
        due = seconds - self._checked >= self._terms.check_seconds or seconds >= self._terms.seconds
        if target is None or self._validate is None or not due:
            return False
        with self.pause():
            found = self._validate()
        self._checked = seconds
        self.checks.append((seconds, self.count.cpu_seconds, found))
        self._report({"event": "check", "seconds": seconds, "ndcg": found})
        return found >= target


def run_system(name: str, package: str, train_system: Callable[[Terms, Material, "Entry"], None]) -> None:
    """Run one system on the task in the folder that the command line names; its own output goes to stderr."""
    lines, sys.stdout = sys.stdout, sys.stderr
    terms, material = read_task(Path(sys.argv[1]))
    torch.set_num_threads(terms.threads)
    entry = Entry(terms, material, lines)
    train_system(terms, material, entry)
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
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "checks": entry.meter.checks,
        }
    )


class Entry:
    """A system's side of the measurement: it says when training begins, and gets the meter."""

    def __init__(self, terms: Terms, material: Material, lines: TextIO) -> None:
        self._terms, self._material, self._lines = terms, material, lines
        self._began = time.perf_counter()
        self.prepare_seconds = 0.0
        self.sizes: dict[str, int] = {}
        self.meter = Meter(terms, self.report)

    def report(self, document: dict[str, Any]) -> None:
        """Write a line for the driver."""
        self._lines.write(json.dumps(document) + "\n")
        self._lines.flush()

    def begin(self, scorer: Scorer, *, samples: int, tokens: int) -> Meter:
        """Everything is prepared: an epoch has so many samples and real tokens. Returns the running meter."""
        self.prepare_seconds = time.perf_counter() - self._began
        self.sizes = {"epoch_samples": samples, "epoch_tokens": tokens}

        def validate() -> float:
            return float(evaluate(scorer, self._material.questions)["NDCG@10"].mean())

        self.meter = Meter(self._terms, self.report, validate=validate)
        return self.meter

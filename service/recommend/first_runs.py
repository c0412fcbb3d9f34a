"""Tells whether the engine of a new champion fails at once: what its golden examples did not show."""

import math
import time
from collections.abc import Callable

WATCHED_S = 60.0
"""How long after a swap runs are counted."""
LEAST_RUNS = 20
"""Fewer runs say nothing."""
FAILED_SHARE = 0.5


class FirstRuns:
    """Counts the runs of a champion in its first minute. `clock` is in seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s = -math.inf
        self.runs = 0
        self.failed = 0
        self.failing = False
        """Whether half of the runs had failed at any time when there were enough of them."""

    def begin(self) -> None:
        """Count from now on: it has just become the champion."""
        self._until_s = self._clock() + WATCHED_S
        self.runs, self.failed, self.failing = 0, 0, False

    def record(self, *, failed: bool) -> None:
        """Count a run, unless it is too late."""
        if self.failing or self._clock() >= self._until_s:
            return
        self.runs += 1
        self.failed += failed
        self.failing = self.runs >= LEAST_RUNS and self.failed >= FAILED_SHARE * self.runs

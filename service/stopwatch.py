"""Where the time of a request goes. Laps follow each other without a gap: together they are the whole."""

import time
from typing import Literal

Stage = Literal["history", "encode", "queue", "inference", "respond"]

STAGES: tuple[Stage, ...] = ("history", "encode", "queue", "inference", "respond")


class Stopwatch:
    """Started with the request, and told at the end of each piece of work to which stage that piece belongs."""

    __slots__ = ("_last", "laps", "started")

    def __init__(self, started: float | None = None) -> None:
        self.started = self._last = time.perf_counter() if started is None else started
        self.laps: dict[Stage, float] = {}
        """Seconds by stage, so far."""

    def lap(self, stage: Stage) -> None:
        """What was done since the last lap belongs to `stage`."""
        now = time.perf_counter()
        self.laps[stage] = self.laps.get(stage, 0.0) + now - self._last
        self._last = now

    def stop(self) -> float:
        """The answer is sent, which was the last of `respond`. The seconds of the whole request."""
        self.lap("respond")
        return self._last - self.started

    def took_ms(self) -> float:
        """Milliseconds so far."""
        return round((time.perf_counter() - self.started) * 1000, 3)

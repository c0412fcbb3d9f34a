"""Measures the time of a request by stage. The stages leave no gap: they add up to the total."""

import time
from typing import Literal

Stage = Literal["history", "encode", "queue", "inference", "respond"]

STAGES: tuple[Stage, ...] = ("history", "encode", "queue", "inference", "respond")


class StageTimer:
    """Starts with the request. After each piece of work, `record` assigns its time to a stage."""

    __slots__ = ("_last", "stage_seconds", "started")

    def __init__(self, started: float | None = None) -> None:
        self.started = self._last = time.perf_counter() if started is None else started
        self.stage_seconds: dict[Stage, float] = {}
        """Seconds so far, by stage."""

    def record(self, stage: Stage, now: float | None = None) -> None:
        """Assign the time since the last call to `stage`. `now` is that of time.perf_counter, if it is known."""
        if now is None:
            now = time.perf_counter()
        self.stage_seconds[stage] = self.stage_seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def stop(self) -> float:
        """Record the end of the answer as `respond`. Returns the seconds of the whole request."""
        self.record("respond")
        return self._last - self.started

    def took_ms(self) -> float:
        """Milliseconds so far."""
        return round((time.perf_counter() - self.started) * 1000, 3)

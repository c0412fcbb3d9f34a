"""Divides long work on the event loop into slices, between which other tasks run."""

import asyncio
import time

SLICE_S = 0.001
"""A request takes some five iterations of the loop; long work prolongs each by one slice."""


class TimeSlices:
    """Shared by all long work of a loop, so that each iteration holds at most one slice."""

    def __init__(self) -> None:
        self._ends_s = 0.0
        self._next = asyncio.Lock()

    async def pause(self) -> None:
        """Return at once while the slice lasts, else after other tasks ran. Long work awaits this at each step."""
        if time.perf_counter() >= self._ends_s:
            async with self._next:
                await asyncio.sleep(0)
                self._ends_s = time.perf_counter() + SLICE_S

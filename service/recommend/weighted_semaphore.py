"""A semaphore whose users take several permits at once, first in, first out."""

import asyncio
from collections import deque


class WeightedSemaphore:
    """Holds `permits`. Small requests do not overtake large ones, so that none starves."""

    def __init__(self, permits: int) -> None:
        self._free = permits
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, permits: int, *, within_s: float) -> None:
        """Take `permits`, at most the total. Raises TimeoutError if they are not free within `within_s` seconds."""
        async with asyncio.timeout(within_s):
            await self._acquire(permits)

    def release(self, permits: int) -> None:
        self._free += permits
        self._grant()

    async def _acquire(self, permits: int) -> None:
        if not self._waiting and permits <= self._free:
            self._free -= permits
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((permits, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._grant()  # the next in line may need fewer
            else:
                self.release(permits)  # it was granted in the same loop iteration
            raise

    def _grant(self) -> None:
        while self._waiting and (self._waiting[0][1].cancelled() or self._waiting[0][0] <= self._free):
            permits, granted = self._waiting.popleft()
            if not granted.cancelled():
                self._free -= permits
                granted.set_result(None)

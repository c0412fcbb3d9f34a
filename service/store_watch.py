"""What operators want to know of the store itself: whether it is safe, and how full."""

import asyncio
import time

from service.errors import StoreUnavailable
from service.history import HistoryStore
from service.metrics import Metrics

LOOK_EVERY_S = 4.0
"""Below the usual interval of scrapes, 5 s: each sees the store as it is."""


class StoreWatch:
    """Looks at the store when the metrics are read, so that there is no task that could die; not for every reader."""

    def __init__(self, *, store: HistoryStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._lock = asyncio.Lock()
        self._looked = float("-inf")

    async def refresh(self) -> None:
        """Bring the store's gauges up to date. One that cannot be seen is not known to be safe."""
        async with self._lock:
            now_s = time.monotonic()
            if now_s - self._looked < LOOK_EVERY_S:
                return
            try:
                state = await self._store.inspect()
            except StoreUnavailable:
                state = None
            self._metrics.store_seen(state)
            self._looked = now_s

"""Brings the store's state into the metrics: whether it is safe, how full it is, and what the archiver did."""

import asyncio
import time

from service.errors import StoreUnavailable
from service.store.history import HistoryStore
from service.telemetry.metrics import Metrics

REFRESH_S = 4.0
"""Below the usual scrape interval of 5 s, so that each scrape sees the current state."""


class StoreMonitor:
    """Checks the store when metrics are read, at most every REFRESH_S. So there is no task that could die."""

    def __init__(self, *, store: HistoryStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._lock = asyncio.Lock()
        self._refreshed_s = float("-inf")

    async def refresh(self) -> None:
        """Update the store's gauges. A store that does not answer counts as not safe."""
        async with self._lock:
            now_s = time.monotonic()
            if now_s - self._refreshed_s < REFRESH_S:
                return
            try:
                state = await self._store.inspect()
            except StoreUnavailable:
                state = None
            self._metrics.store_seen(state)
            self._refreshed_s = now_s

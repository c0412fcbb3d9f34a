"""Brings the store's state into the metrics: whether it is safe, how full it is, and what the archiver did."""

from service.store.history import HistoryStore
from service.store.probe import ThrottledProbe
from service.store.status import StoreState
from service.telemetry.metrics import Metrics

REFRESH_S = 2.0
"""Below the usual scrape interval of 5 s, so that each scrape sees the current state, and GET /status a fault soon."""


class StoreMonitor:
    """Checks the store when metrics or status are read, at most every REFRESH_S. So there is no task that could die."""

    def __init__(self, *, store: HistoryStore, metrics: Metrics) -> None:
        self._probe = ThrottledProbe(store.inspect, every_s=REFRESH_S)
        self._metrics = metrics

    async def refresh(self) -> StoreState | None:
        """Update the store's gauges. A store that does not answer, None, counts as not safe."""
        state = await self._probe.ask()
        self._metrics.store_seen(state)
        return state

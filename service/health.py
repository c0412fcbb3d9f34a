"""Readiness: whether the service can answer, and the reasons if it cannot or only in part."""

from collections.abc import Callable
from typing import Literal

from service.api.responses import Readiness
from service.recommend.recommender import Recommender
from service.store.history import HistoryStore
from service.store.probe import ThrottledProbe

PING_EVERY_S = 1.0


class Health:
    """Reports readiness. However often it is asked, it pings the store at most once a second."""

    def __init__(
        self, *, store: HistoryStore, recommender: Recommender, workers_missing: Callable[[], int] = lambda: 0
    ) -> None:
        self._store = store
        self._recommender = recommender
        self._workers_missing = workers_missing
        self._probe = ThrottledProbe(self._ping, every_s=PING_EVERY_S)
        self.phase: Literal["starting", "serving", "draining"] = "starting"
        self.leaving = False
        """Whether this process is about to stop, so that clients should close their connections."""

    def drain(self) -> None:
        """The service is about to stop: report that it is not ready, but go on answering."""
        self.phase = "draining"
        self.leaving = True

    def retire(self) -> None:
        """Another worker has replaced this one: the process is about to stop, the service is not."""
        self.leaving = True

    @property
    def draining(self) -> bool:
        """Whether the service is about to stop."""
        return self.phase == "draining"

    async def report(self) -> tuple[int, Readiness]:
        """The status code and the document. While only fallbacks work, the code is 200 and the status `degraded`."""
        if self.phase != "serving":
            return 503, Readiness(status=self.phase, reasons=[])
        if not self._recommender.alive:
            return 503, Readiness(status="degraded", reasons=["batcher_stopped"])
        reasons = []
        if not await self._probe.ask():
            reasons.append("store_unavailable")
        else:
            if not self._store.durable:
                reasons.append("store_not_durable")
            if self._store.refuses_events:
                reasons.append("store_refuses_events")
            if self._store.lost_events:
                reasons.append("store_lost_events")
        if self._recommender.engine_fails:
            reasons.append("engine_unavailable")
        if self._workers_missing():
            reasons.append("worker_missing")
        return 200, Readiness(status="degraded" if reasons else "ok", reasons=reasons)

    async def _ping(self) -> bool:
        await self._store.ping()
        return True

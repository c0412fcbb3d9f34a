"""Whether the service can answer, and why not or only in part."""

import asyncio
import time
from typing import Literal

from service.answers import Readiness
from service.errors import StoreUnavailable
from service.history import HistoryStore
from service.recommender import Recommender

PING_EVERY_S = 1.0


class Health:
    """Readiness, asked as often as anyone likes: the store is pinged once a second at most."""

    def __init__(self, *, store: HistoryStore, recommender: Recommender) -> None:
        self._store = store
        self._recommender = recommender
        self._lock = asyncio.Lock()
        self._pinged = float("-inf")
        self._store_answers = False
        self.phase: Literal["starting", "serving", "draining"] = "starting"

    def drain(self) -> None:
        """From now on it is not ready: the service is about to stop. It still answers."""
        self.phase = "draining"

    @property
    def draining(self) -> bool:
        """Whether the service is about to stop."""
        return self.phase == "draining"

    async def report(self) -> tuple[int, Readiness]:
        """The status code and what it means. A ladder that holds is 200, `degraded`."""
        if self.phase != "serving":
            return 503, Readiness(status=self.phase, reasons=[])
        if not self._recommender.alive:
            return 503, Readiness(status="degraded", reasons=["batcher_stopped"])
        reasons = []
        if not await self._ask_store():
            reasons.append("store_unavailable")
        elif not self._store.durable:
            reasons.append("store_not_durable")
        if self._recommender.engine_fails:
            reasons.append("engine_unavailable")
        return 200, Readiness(status="degraded" if reasons else "ok", reasons=reasons)

    async def _ask_store(self) -> bool:
        async with self._lock:
            if time.monotonic() - self._pinged >= PING_EVERY_S:
                try:
                    await self._store.ping()
                    self._store_answers = True
                except StoreUnavailable:
                    self._store_answers = False
                self._pinged = time.monotonic()
            return self._store_answers

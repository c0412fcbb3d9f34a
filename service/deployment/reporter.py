"""Tells the store every few seconds what this worker serves, for `nextitem-serve models status`."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from service.api.timestamps import format_rfc_3339, now_ms
from service.deployment.followed import Followed
from service.deployment.instance import Instance, is_running
from service.recommend.recommender import Recommender
from service.store.worker_states import (
    REPORT_EVERY_S,
    Refused,
    WorkerState,
    remove_dead_workers,
    remove_worker_state,
    write_worker_state,
)

LOOK_EVERY_S: Final = 1.0
"""How often a worker compares what it would report with its last report: a breaker opens and closes unannounced."""

_log = logging.getLogger(__name__)


class Reporter:
    """Reports what a worker serves: within LOOK_EVERY_S when it changes, and every REPORT_EVERY_S seconds."""

    def __init__(
        self,
        client: Redis,
        instance: Instance,
        *,
        recommender: Recommender,
        followed: Callable[[], Followed],
        also_serve: tuple[str, ...] = (),
    ) -> None:
        self._client = client
        self._instance = instance
        self._recommender = recommender
        self._followed = followed
        self._also_serve = also_serve
        self._changed = asyncio.Event()
        self._reported: WorkerState | None = None
        self._reported_s = float("-inf")
        self._failed = False

    def notify(self) -> None:
        """Report soon: something has changed. Called on the loop."""
        self._changed.set()

    async def run(self) -> None:
        """Report until cancelled, then take the report back."""
        task = asyncio.current_task()
        try:
            await self._remove_dead()
            await self._write()
            while task is None or not task.cancelling():  # a call of the store may swallow a cancellation
                try:
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await self._changed.wait()
                except TimeoutError:
                    if not self._is_due():
                        continue
                self._changed.clear()
                await self._write()
        finally:
            try:
                async with asyncio.timeout(1.0):
                    await remove_worker_state(self._client, self._instance.worker)
            except (RedisError, OSError, TimeoutError):
                pass  # it expires

    def describe(self) -> WorkerState:
        """What this worker serves now."""
        variants, followed = self._recommender.variants, self._followed()
        refusal = followed.refusal
        return WorkerState(
            worker=self._instance.worker,
            generation=variants.generation,
            champion=variants.champion.version,
            candidate=None if variants.candidate is None else variants.candidate.version,
            refused=None
            if refusal is None
            else Refused(refusal.version, refusal.code, format_rfc_3339(refusal.since_ms), refusal.generation),
            at_ms=now_ms(),
            folder_id="" if followed.deployment is None else followed.deployment.folder_id,
            breaker_open=variants.candidate is not None and variants.candidate.monitor.out_of_use,
            also_serve=self._also_serve,
        )

    async def _remove_dead(self) -> None:
        """Take back what workers said that were killed: this one may have come for one of them."""
        with contextlib.suppress(RedisError, OSError, TimeoutError):  # they expire
            await remove_dead_workers(self._client, self._instance.name, runs=is_running)

    def _is_due(self) -> bool:
        """Whether the last report is old, or no longer true."""
        if self._reported is None or time.monotonic() - self._reported_s >= REPORT_EVERY_S:
            return True
        return replace(self.describe(), at_ms=self._reported.at_ms) != self._reported

    async def _write(self) -> None:
        self._reported, self._reported_s = self.describe(), time.monotonic()
        try:
            await write_worker_state(self._client, self._reported)
        except (RedisError, OSError, TimeoutError) as error:
            if not self._failed:
                _log.warning(
                    "The store does not take what this worker serves", extra={"fields": {"why": type(error).__name__}}
                )
            self._failed = True
        else:
            self._failed = False

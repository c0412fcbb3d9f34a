"""The store's state as gauges: memory, safety, clock, and the archiver's work."""

import math

from prometheus_client import CollectorRegistry

from service.store.archive_status import FAILURES
from service.store.status import StoreState
from service.telemetry import definitions


class StoreGauges:
    """Gauges of the last state of the store that was read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._durable = definitions.STORE_DURABLE.make(registry)
        self._memory = definitions.STORE_MEMORY.make(registry)
        self._memory_limit = definitions.STORE_MEMORY_LIMIT.make(registry)
        self._lost = definitions.STORE_LOST_EVENTS.make(registry)
        self._archive_success = definitions.ARCHIVE_LAST_SUCCESS.make(registry)
        failed = definitions.ARCHIVE_FAILED_RUNS.make(registry)
        self._archive_failed = {kind: failed.labels(kind) for kind in FAILURES}
        self._archive_pending = definitions.ARCHIVE_PENDING.make(registry)
        self._erasures_pending = definitions.ERASURES_PENDING.make(registry)
        self._oldest_erasure = definitions.OLDEST_ERASURE.make(registry)
        self._clock_skew = definitions.STORE_CLOCK_SKEW.make(registry)

    def update(self, state: StoreState | None) -> None:
        """Set all gauges. `state` is None if the store did not answer: then what is unknown is NaN."""
        self._durable.set(state is not None and state.durable)
        self._memory.set(state.memory_bytes if state else math.nan)
        self._memory_limit.set(state.memory_limit_bytes if state else math.nan)
        self._lost.set(state.lost_events if state else math.nan)
        archive = state.archive if state else None
        self._archive_success.set(archive.last_success_s if archive else math.nan)
        self._archive_pending.set(archive.pending_events if archive else math.nan)
        self._erasures_pending.set(archive.erasures_pending if archive else math.nan)
        self._oldest_erasure.set(archive.oldest_erasure_s if archive else math.nan)
        for kind, gauge in self._archive_failed.items():
            gauge.set(archive.failed_runs[kind] if archive else math.nan)
        skew_s = state.clock_skew_s if state else None
        self._clock_skew.set(math.nan if skew_s is None else skew_s)

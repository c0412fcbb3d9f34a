"""Every metric of the service, in one place. Labels come from bounded sets; none holds a user or an item.

What every request counts is settled before it is exposed, and every quarter of a second for the other workers.

With PROMETHEUS_MULTIPROC_DIR set when this module is first imported, several worker processes add up to one exposition.
"""

import asyncio
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector

from service.answers import Degraded
from service.history import ERROR_KINDS, OPERATIONS, ErrorKind, Operation, StoreState
from service.metrics_folder import METRICS_FOLDER, lock_readers
from service.stopwatch import STAGES, Stopwatch
from service.tally import Count, Level, Tally

S = TypeVar("S", Tally, Count, Level)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

SOURCES = ("model", "neighbours", "popular")
DEGRADED: tuple[Degraded, ...] = get_args(Degraded)
Shed = Literal["queue_full", "requests_full", "events_full"]
SHED: tuple[Shed, ...] = get_args(Shed)
RESULTS = ("accepted", "duplicate", "rejected")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE")
SETTLE_S = 0.25
"""How far what a worker shows may lag behind what it did; a worker that is killed loses so much of its counts."""
OTHER = "other"
UNMATCHED = "unmatched"

_SECONDS = (
    0.0005,
    0.001,
    0.002,
    0.003,
    0.005,
    0.0075,
    0.01,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.2,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
_LAGS = (0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0, 3600.0, 21_600.0, 86_400.0, 604_800.0, 2_592_000.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The service's metrics in a registry of their own; series of closed label sets exist at 0 from the start."""

    def __init__(self, *, event_types: Iterable[str], model_version: str, routes: Iterable[tuple[str, str]]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped there; a second series for each of ours
        registry = CollectorRegistry()
        self._registry = registry
        self._version = model_version
        self._routes = frozenset(template for template, _ in routes)
        self._event_types = frozenset(event_types)
        self._requests = Histogram(
            "nextitem_http_request_duration_seconds",
            "From the arrival of a request's head to the end of its answer, by route template; 499: the client left",
            ("route", "method", "code"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._settled: list[Tally | Count | Level] = []
        # Bound once: to look a series up by its labels takes longer than to count.
        self._bound = {
            (path, method, 200): self._tally(self._requests.labels(path, method, "200")) for path, method in routes
        }
        stages = Histogram(
            "nextitem_stage_duration_seconds",
            "Time of each answered POST /recommend in each stage, 0 where it skipped one: encode (with reading the "
            "request), queue (for a batch, for the engine), history, inference, respond; they add up to the whole",
            ("stage",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._stages = {stage: self._tally(stages.labels(stage)) for stage in STAGES}
        recommend = Counter(
            "nextitem_recommend_total",
            "Answers by source and model version",
            ("source", "version"),
            registry=registry,
        )
        self._recommend = {source: self._count(recommend.labels(source, model_version)) for source in SOURCES}
        fallback = Counter(
            "nextitem_fallback_total",
            "Degraded answers by reason; cold starts are none",
            ("reason",),
            registry=registry,
        )
        self._fallback = {reason: fallback.labels(reason) for reason in DEGRADED}
        shed = Counter(
            "nextitem_shed_total",
            "Requests without room: queue_full ones got popular items, requests_full and events_full ones 503",
            ("reason",),
            registry=registry,
        )
        self._shed = {reason: shed.labels(reason) for reason in SHED}
        self._batch_size = self._tally(
            Histogram("nextitem_batch_size", "Requests in one batch", buckets=_SIZES, registry=registry)
        )
        depth = Gauge(
            "nextitem_queue_depth", "Requests that wait for a batch", registry=registry, multiprocess_mode="livesum"
        )
        self._queue_depth = self._settling(Level(depth))
        self._queue_wait = self._tally(
            Histogram(
                "nextitem_queue_wait_seconds",
                "How long a request waited for its batch",
                buckets=_SECONDS,
                registry=registry,
            )
        )
        events = Counter(
            "nextitem_events_total",
            f"Events by type and result; rejected ones without a known type are {OTHER!r}",
            ("type", "result"),
            registry=registry,
        )
        self._events = {
            (event_type, result): self._count(events.labels(event_type, result))
            for event_type in (*self._event_types, OTHER)
            for result in RESULTS
        }
        self._late = Counter(
            "nextitem_events_late_total", "Accepted events too old for the remembered history", registry=registry
        )
        self._lag = self._tally(
            Histogram(
                "nextitem_event_lag_seconds",
                "From an event's timestamp to its acceptance; 0 for clocks that are ahead",
                buckets=_LAGS,
                registry=registry,
            )
        )
        self._unknown = self._count(
            Counter(
                "nextitem_unknown_items_total",
                "Items that the model does not know, each time that an event, a history or a request names one",
                registry=registry,
            )
        )
        store = Histogram(
            "nextitem_store_duration_seconds", "Calls to the store", ("op",), buckets=_SECONDS, registry=registry
        )
        self._store = {op: self._tally(store.labels(op)) for op in OPERATIONS}
        errors = Counter("nextitem_store_errors_total", "Failed calls to the store", ("kind",), registry=registry)
        self._store_errors = {kind: errors.labels(kind) for kind in ERROR_KINDS}
        self._store_durable = Gauge(
            "nextitem_store_durable",
            "1 while the store's settings are safe: append-only file, fsync always, no eviction; 0 if not or not known",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._store_memory = Gauge(
            "nextitem_store_memory_bytes",
            "Memory that the store uses; NaN while it does not answer",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._store_memory_limit = Gauge(
            "nextitem_store_memory_limit_bytes",
            "Memory that the store may use, 0 without a limit; NaN while it does not answer",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._model_info = Gauge(
            "nextitem_model_info",
            "1 for the model in use, a gauge so that several workers do not add up",
            ("name", "version", "provider", "digest"),
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._trained = Gauge(
            "nextitem_model_trained_timestamp_seconds",
            "When the model in use was trained",
            registry=registry,
            multiprocess_mode="livemax",
        )

    def request_ended(self, *, route: str, method: str, code: int, stopwatch: Stopwatch) -> None:
        """One HTTP request was answered. Its stages count when it was one for recommendations."""
        staged = code == 200 and "encode" in stopwatch.laps  # which every request for recommendations has
        seconds = stopwatch.stop()
        series = self._bound.get((route, method, code))
        if series is None:
            template = route if route in self._routes else UNMATCHED
            self._requests.labels(template, method if method in METHODS else OTHER, str(code)).observe(seconds)
        else:
            series.observe(seconds)
        if staged:
            for stage, histogram in self._stages.items():
                histogram.observe(stopwatch.laps.get(stage, 0.0))

    def answered(self, *, source: str, degraded: Degraded | None) -> None:
        """One recommendation was made."""
        self._recommend[source].inc()
        if degraded is not None:
            self._fallback[degraded].inc()

    def shed(self, reason: Shed) -> None:
        """There was no room for a request."""
        self._shed[reason].inc()

    def batch_started(self, size: int) -> None:
        """A batch left the queue."""
        self._batch_size.observe(size)

    def waited(self, seconds: float) -> None:
        """One request left the queue."""
        self._queue_wait.observe(seconds)

    def queue_changed(self, depth: int) -> None:
        """So many requests wait now."""
        self._queue_depth.set(depth)

    def event_handled(self, *, event_type: object, result: str) -> None:
        """One event was accepted, or not."""
        known = isinstance(event_type, str) and event_type in self._event_types
        self._events[str(event_type) if known else OTHER, result].inc()

    def event_accepted(self, lag_s: float) -> None:
        """An event was accepted so long after it happened."""
        self._lag.observe(max(0.0, lag_s))

    def events_late(self, count: int) -> None:
        """So many accepted events were too old for their histories."""
        self._late.inc(count)

    def items_unknown(self, count: int) -> None:
        """So many items were named that the model does not know."""
        self._unknown.inc(count)

    def store_called(self, op: Operation, seconds: float) -> None:
        """One call to the store ended."""
        self._store[op].observe(seconds)

    def store_failed(self, kind: ErrorKind) -> None:
        """One call to the store failed."""
        self._store_errors[kind].inc()

    def store_seen(self, state: StoreState | None) -> None:
        """The store was looked at, and did not answer if there is no state."""
        self._store_durable.set(state is not None and state.durable)
        self._store_memory.set(state.memory_bytes if state else math.nan)
        self._store_memory_limit.set(state.memory_limit_bytes if state else math.nan)

    def model_loaded(self, *, name: str, provider: str, digest: str, trained_at_s: float | None) -> None:
        """This model answers from now on."""
        self._model_info.labels(name, self._version, provider, digest).set(1)
        if trained_at_s is not None:
            self._trained.set(trained_at_s)

    def settle(self) -> None:
        """Hand what was counted to where it is exposed from. On the thread that counts."""
        for series in self._settled:
            series.settle()

    async def keep_settled(self) -> None:
        """Settle every SETTLE_S seconds, since another worker may be asked for all."""
        while True:
            await asyncio.sleep(SETTLE_S)
            self.settle()

    def _tally(self, histogram: Histogram) -> Tally:
        return self._settling(Tally(histogram))

    def _count(self, counter: Counter) -> Count:
        return self._settling(Count(counter))

    def _settling(self, series: S) -> S:
        self._settled.append(series)
        return series

    def expose(self) -> bytes:
        """All metrics in Prometheus' text format, those of the other workers included, as they were last settled."""
        folder = os.environ.get(METRICS_FOLDER)
        if folder is None:
            return generate_latest(self._registry)
        with lock_readers(Path(folder), alone=False):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # the library leaves it untyped
            return generate_latest(registry)

"""All metrics of the service. Label values come from bounded sets; none holds a user or an item.

Metrics of the hot path are buffered. They are flushed before exposition, and every FLUSH_S for the other workers.

If PROMETHEUS_MULTIPROC_DIR is set when this module is first imported, all worker processes share one exposition.
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

from service.api.responses import Degraded
from service.store.archive_status import FAILURES
from service.store.failures import ERROR_KINDS, ErrorKind
from service.store.history import OPERATIONS, Operation
from service.store.status import StoreState
from service.telemetry.buffered import BufferedCounter, BufferedGauge, BufferedHistogram
from service.telemetry.multiprocess import METRICS_FOLDER, lock_readers
from service.telemetry.processes import ProcessMetrics
from service.telemetry.stage_timer import STAGES, StageTimer

S = TypeVar("S", BufferedHistogram, BufferedCounter, BufferedGauge, ProcessMetrics)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

SOURCES = ("model", "neighbours", "popular")
DEGRADED: tuple[Degraded, ...] = get_args(Degraded)
Shed = Literal["queue_full", "requests_full", "events_full", "batches_full", "waiters_full"]
SHED: tuple[Shed, ...] = get_args(Shed)
RESULTS = ("accepted", "duplicate", "rejected")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE")
FLUSH_S = 0.25
"""Interval of flushes. Metrics lag by up to this, and a killed worker loses up to this much of its counts."""
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
_LOOP_LAGS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LAGS = (
    0.001,
    0.003,
    0.01,
    0.03,
    0.1,
    0.3,
    1.0,
    3.0,
    10.0,
    60.0,
    600.0,
    3600.0,
    21_600.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class WorkerMetrics:
    """Metrics of the worker processes, set by the supervisor or by the only worker."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._configured = Gauge(
            "nextitem_workers",
            "Configured worker processes",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._missing = Gauge(
            "nextitem_workers_missing",
            "Configured worker processes that do not serve: dead and not replaced yet, or unable to start",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._deaths = Counter(
            "nextitem_worker_deaths_total",
            "Worker processes that ended unexpectedly, including failed starts",
            registry=registry,
        )

    def workers_seen(self, *, configured: int, missing: int) -> None:
        """Set the number of configured workers, and of those that do not serve."""
        self._configured.set(configured)
        self._missing.set(missing)

    def worker_died(self) -> None:
        """Count a worker that ended unexpectedly."""
        self._deaths.inc()


class Metrics:
    """The service's metrics, in their own registry. Series with known labels exist at 0 from the start."""

    _exposition: asyncio.Task[bytes] | None

    def __init__(self, *, event_types: Iterable[str], model_version: str, routes: Iterable[tuple[str, str]]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped; it would add a second series to each metric
        registry = self._registry = CollectorRegistry()
        self._version = model_version
        self._routes = frozenset(template for template, _ in routes)
        self._event_types = frozenset(event_types)
        self._requests = Histogram(
            "nextitem_http_request_duration_seconds",
            "Time from the arrival of a request's head to the end of its answer, by route template; code 499: the "
            "client disconnected",
            ("route", "method", "code"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._buffered: list[BufferedHistogram | BufferedCounter | BufferedGauge | ProcessMetrics] = []
        self._exposition, self._exposition_lock = None, asyncio.Lock()
        # Resolved once: looking up a series by labels takes longer than counting.
        self._bound = {
            (path, method, 200): self._buffer_histogram(self._requests.labels(path, method, "200"))
            for path, method in routes
        }
        stages = Histogram(
            "nextitem_stage_duration_seconds",
            "Time of each answered POST /recommend per stage, 0 for a skipped stage: encode (including reading the "
            "request), queue (for a batch and for the engine), history, inference, respond; they add up to the total",
            ("stage",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._stages = {stage: self._buffer_histogram(stages.labels(stage)) for stage in STAGES}
        recommend = Counter(
            "nextitem_recommend_total",
            "Recommendations by source and model version",
            ("source", "version"),
            registry=registry,
        )
        self._recommend = {source: self._buffer_counter(recommend.labels(source, model_version)) for source in SOURCES}
        fallback = Counter(
            "nextitem_fallback_total",
            "Degraded recommendations by reason; cold starts do not count",
            ("reason",),
            registry=registry,
        )
        self._fallback = {reason: fallback.labels(reason) for reason in DEGRADED}
        shed = Counter(
            "nextitem_shed_total",
            "Requests over a limit, by reason: queue_full ones got popular items, waiters_full ones (waiting for a "
            "min_history_version) got 409, requests_full, batches_full and events_full ones got 503",
            ("reason",),
            registry=registry,
        )
        self._shed = {reason: shed.labels(reason) for reason in SHED}
        self._batch_size = self._buffer_histogram(
            Histogram("nextitem_batch_size", "Requests per batch", buckets=_SIZES, registry=registry)
        )
        depth = Gauge(
            "nextitem_queue_depth", "Requests waiting for a batch", registry=registry, multiprocess_mode="livesum"
        )
        self._queue_depth = self._buffer(BufferedGauge(depth))
        self._queue_wait = self._buffer_histogram(
            Histogram(
                "nextitem_queue_wait_seconds",
                "Time that a request waited for its batch",
                buckets=_SECONDS,
                registry=registry,
            )
        )
        events = Counter(
            "nextitem_events_total",
            f"Events by type and result; rejected events without a known type count as {OTHER!r}",
            ("type", "result"),
            registry=registry,
        )
        self._events = {
            (event_type, result): self._buffer_counter(events.labels(event_type, result))
            for event_type in (*self._event_types, OTHER)
            for result in RESULTS
        }
        self._late = Counter(
            "nextitem_events_late_total",
            "Accepted events that were too old for the remembered history",
            registry=registry,
        )
        self._lag = self._buffer_histogram(
            Histogram(
                "nextitem_event_lag_seconds",
                "Time from an event's timestamp to its acceptance; 0 for timestamps in the future",
                buckets=_LAGS,
                registry=registry,
            )
        )
        self._unknown = self._buffer_counter(
            Counter(
                "nextitem_unknown_items_total",
                "Items unknown to the model, in accepted events and in answered requests",
                registry=registry,
            )
        )
        store = Histogram(
            "nextitem_store_duration_seconds",
            "Duration of calls to the store",
            ("op",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._store = {op: self._buffer_histogram(store.labels(op)) for op in OPERATIONS}
        errors = Counter(
            "nextitem_store_errors_total", "Failed calls to the store by kind", ("kind",), registry=registry
        )
        self._store_errors = {kind: errors.labels(kind) for kind in ERROR_KINDS}
        self._store_durable = Gauge(
            "nextitem_store_durable",
            "1 while the store's settings are safe (append-only file, fsync always, no eviction), else 0",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._store_memory = Gauge(
            "nextitem_store_memory_bytes",
            "Memory used by the store; NaN while it does not answer",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._store_memory_limit = Gauge(
            "nextitem_store_memory_limit_bytes",
            "Memory limit of the store, 0 without a limit; NaN while it does not answer",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._store_lost = Gauge(
            "nextitem_store_lost_events",
            "Events that the embedded store has lost, until an operator acknowledges the loss; NaN while it does not "
            "answer",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._archive_success = self._store_gauge(
            "nextitem_archive_last_success_timestamp_seconds",
            "Time of the archiver's last successful run, 0 if there was none; NaN while it is unknown",
        )
        failed = Gauge(
            "nextitem_archive_failed_runs",
            "Failed archiver runs since the last successful one, by kind: the store (connection, timeout, refused, "
            "data), the folder (folder, segment, disk), or other",
            ("kind",),
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._archive_failed = {kind: failed.labels(kind) for kind in FAILURES}
        self._archive_pending = self._store_gauge(
            "nextitem_archive_pending_events", "Events in the store's log that are not archived yet"
        )
        self._erasures_pending = self._store_gauge(
            "nextitem_erasures_pending", "Erased users that the archiver has not removed from the archive yet"
        )
        self._oldest_erasure = self._store_gauge(
            "nextitem_erasure_oldest_pending_timestamp_seconds",
            "Time of the oldest erasure that the archiver has not carried out yet, 0 if there is none",
        )
        self._store_clock_skew = Gauge(
            "nextitem_store_clock_skew_seconds",
            "Seconds by which the store's clock is ahead of the service's; NaN while unknown",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        connections = Gauge(
            "nextitem_http_connections",
            "Open client connections",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._connections = self._buffer(BufferedGauge(connections))
        self._model_info = Gauge(
            "nextitem_model_info",
            "1 for the model in use, with its name, version, provider and digest as labels",
            ("name", "version", "provider", "digest"),
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._trained = Gauge(
            "nextitem_model_trained_timestamp_seconds",
            "Time at which the model in use was trained",
            registry=registry,
            multiprocess_mode="livemax",
        )
        workers = WorkerMetrics(registry)
        if METRICS_FOLDER not in os.environ:
            workers.workers_seen(configured=1, missing=0)
        self._loop_lag = self._buffer_histogram(
            Histogram(
                "nextitem_event_loop_lag_seconds",
                "Delay of the event loop, sampled four times a second",
                buckets=_LOOP_LAGS,
                registry=registry,
            )
        )
        self._process = self._buffer(ProcessMetrics(registry))

    def request_ended(self, *, route: str, method: str, code: int, timer: StageTimer) -> None:
        """Count an answered HTTP request, and its stages if it was for recommendations."""
        staged = code == 200 and "encode" in timer.stage_seconds  # set for recommendations only
        seconds = timer.stop()
        series = self._bound.get((route, method, code))
        if series is None:
            template = route if route in self._routes else UNMATCHED
            self._requests.labels(template, method if method in METHODS else OTHER, str(code)).observe(seconds)
        else:
            series.observe(seconds)
        if staged:
            for stage, histogram in self._stages.items():
                histogram.observe(timer.stage_seconds.get(stage, 0.0))

    def answered(self, *, source: str, degraded: Degraded | None) -> None:
        """Count a recommendation."""
        self._recommend[source].inc()
        if degraded is not None:
            self._fallback[degraded].inc()

    def shed(self, reason: Shed) -> None:
        """Count a request over a limit."""
        self._shed[reason].inc()

    def batch_started(self, size: int) -> None:
        """Count a batch."""
        self._batch_size.observe(size)

    def waited(self, seconds: float) -> None:
        """Record the queue time of a request."""
        self._queue_wait.observe(seconds)

    def queue_changed(self, depth: int) -> None:
        """Set the number of waiting requests."""
        self._queue_depth.set(depth)

    def event_handled(self, *, event_type: object, result: str) -> None:
        """Count an event and its result."""
        known = isinstance(event_type, str) and event_type in self._event_types
        self._events[str(event_type) if known else OTHER, result].inc()

    def event_accepted(self, lag_s: float) -> None:
        """Record the seconds from an event to its acceptance."""
        self._lag.observe(max(0.0, lag_s))

    def events_late(self, count: int) -> None:
        """Count accepted events that were too old for their histories."""
        self._late.inc(count)

    def items_unknown(self, count: int) -> None:
        """Count items unknown to the model."""
        self._unknown.inc(count)

    def connections_changed(self, number: int) -> None:
        """Set the number of open connections."""
        self._connections.set(number)

    def store_called(self, op: Operation, seconds: float) -> None:
        """Record the duration of a call to the store."""
        self._store[op].observe(seconds)

    def store_failed(self, kind: ErrorKind) -> None:
        """Count a failed call to the store."""
        self._store_errors[kind].inc()

    def store_seen(self, state: StoreState | None) -> None:
        """Set the store's gauges. `state` is None if the store did not answer."""
        self._store_durable.set(state is not None and state.durable)
        self._store_memory.set(state.memory_bytes if state else math.nan)
        self._store_memory_limit.set(state.memory_limit_bytes if state else math.nan)
        self._store_lost.set(state.lost_events if state else math.nan)
        archive = state.archive if state else None
        self._archive_success.set(archive.last_success_s if archive else math.nan)
        self._archive_pending.set(archive.pending_events if archive else math.nan)
        self._erasures_pending.set(archive.erasures_pending if archive else math.nan)
        self._oldest_erasure.set(archive.oldest_erasure_s if archive else math.nan)
        for kind, gauge in self._archive_failed.items():
            gauge.set(archive.failed_runs[kind] if archive else math.nan)
        skew_s = state.clock_skew_s if state else None
        self._store_clock_skew.set(math.nan if skew_s is None else skew_s)

    def model_loaded(self, *, name: str, provider: str, digest: str, trained_at_s: float | None) -> None:
        """Describe the model in use."""
        self._model_info.labels(name, self._version, provider, digest).set(1)
        if trained_at_s is not None:
            self._trained.set(trained_at_s)

    def built(self, *, version: str, onnxruntime: str) -> None:
        """Describe the running versions."""
        self._process.built(version=version, onnxruntime=onnxruntime)

    def flush(self) -> None:
        """Flush all buffered metrics. Call it on the event loop's thread, which also writes them."""
        for series in self._buffered:
            series.flush()

    async def keep_flushed(self) -> None:
        """Flush every FLUSH_S seconds, for the other workers' expositions, and record the delay of the loop."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + FLUSH_S
            await asyncio.sleep(FLUSH_S)
            self._loop_lag.observe(max(0.0, loop.time() - due_s))
            self.flush()

    def _buffer_histogram(self, histogram: Histogram) -> BufferedHistogram:
        return self._buffer(BufferedHistogram(histogram))

    def _buffer_counter(self, counter: Counter) -> BufferedCounter:
        return self._buffer(BufferedCounter(counter))

    def _store_gauge(self, name: str, words: str) -> Gauge:
        """A gauge of the store, which has the same value in all workers."""
        return Gauge(name, words, registry=self._registry, multiprocess_mode="livemostrecent")

    def _buffer(self, series: S) -> S:
        self._buffered.append(series)
        return series

    async def read(self) -> bytes:
        """`expose` in a thread. Callers that arrive during an exposition share the next one."""
        if self._exposition is None:
            self._exposition = asyncio.create_task(self._render())
        return await asyncio.shield(self._exposition)

    async def _render(self) -> bytes:
        async with self._exposition_lock:
            self._exposition = None  # later callers get a newer one
            self.flush()
            return await asyncio.to_thread(self.expose)  # with several workers this reads files

    def expose(self) -> bytes:
        """All metrics in the Prometheus text format, including the other workers' last flushed values."""
        folder = os.environ.get(METRICS_FOLDER)
        if folder is None:
            return generate_latest(self._registry)
        with lock_readers(Path(folder), alone=False):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # the library leaves it untyped
            return generate_latest(registry)

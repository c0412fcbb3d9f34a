"""All metrics of the service. Label values come from bounded sets; none holds a user or an item.

Metrics of the hot path are buffered. They are flushed before exposition, and every FLUSH_S for the other workers.

If PROMETHEUS_MULTIPROC_DIR is set when this module is first imported, all worker processes share one exposition.
"""

import asyncio
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, disable_created_metrics

from service.api.responses import AnsweringVariant, Degraded
from service.inference.item_masks import Plan
from service.store.failures import ERROR_KINDS, ErrorKind
from service.store.operations import OPERATIONS, Operation
from service.store.status import StoreState
from service.telemetry import definitions
from service.telemetry.buffered import Buffers
from service.telemetry.catalogue_metrics import CatalogueMetrics
from service.telemetry.exposition import render
from service.telemetry.live_scores import LiveScoresCollector
from service.telemetry.model_metrics import AnswerCounter, ModelMetrics
from service.telemetry.multiprocess import METRICS_FOLDER
from service.telemetry.processes import ProcessMetrics, WorkerMetrics
from service.telemetry.scenario_metrics import ScenarioMetrics
from service.telemetry.stage_timer import STAGES, StageTimer
from service.telemetry.store_gauges import StoreGauges

DEGRADED: tuple[Degraded, ...] = get_args(Degraded)
Shed = Literal["queue_full", "requests_full", "events_full", "batches_full", "waiters_full"]
SHED: tuple[Shed, ...] = get_args(Shed)
Explained = Literal["explained", "timeout", "failed", "unsupported"]
EXPLAINED: tuple[Explained, ...] = get_args(Explained)
PLANS: tuple[Plan, ...] = get_args(Plan)
RESULTS = ("accepted", "duplicate", "rejected")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE")
FLUSH_S = 0.25
"""Interval of flushes. Metrics lag by up to this, and a killed worker loses up to this much of its counts."""
OTHER = "other"
UNMATCHED = "unmatched"


class Metrics:
    """The service's metrics, in their own registry. Series with known labels exist at 0 from the start."""

    _expositions: dict[frozenset[str] | None, asyncio.Task[bytes]]

    def __init__(
        self,
        *,
        event_types: Iterable[str],
        model_version: str,
        routes: Iterable[tuple[str, str]],
        bundles: Path | None = None,
    ) -> None:
        """`bundles`: the folder where the judge of these models writes its scores, if there can be any."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped; it would add a second series to each metric
        registry = self._registry = CollectorRegistry()
        self._live_scores = LiveScoresCollector(bundles)
        buffers = self._buffers = Buffers()
        self._routes = frozenset(template for template, _ in routes)
        self._event_types = frozenset(event_types)
        self._expositions, self._exposition_lock = {}, asyncio.Lock()
        self._requests = definitions.REQUESTS.make(registry)
        # Resolved once, as everywhere below: looking up a series by labels takes longer than counting.
        self._bound = {
            (path, method, 200): buffers.histogram(self._requests.labels(path, method, "200"))
            for path, method in routes
        }
        stages = definitions.STAGE_TIMES.make(registry)
        self._stages = {stage: buffers.histogram(stages.labels(stage)) for stage in STAGES}
        self.answers = AnswerCounter(definitions.RECOMMENDATIONS.make(registry), buffers)
        self.answers.expect(model_version, "champion")
        fallbacks = definitions.FALLBACKS.make(registry)
        self._fallbacks = {reason: fallbacks.labels(reason) for reason in DEGRADED}
        shed = definitions.SHED_REQUESTS.make(registry)
        self._shed = {reason: shed.labels(reason) for reason in SHED}
        explained = definitions.EXPLAINED.make(registry)
        self._explained = {result: explained.labels(result) for result in EXPLAINED}
        filtered = definitions.FILTERED.make(registry)
        self._filtered = {plan: filtered.labels(plan) for plan in PLANS}
        similar = definitions.SIMILAR.make(registry)
        self._similar = {result: similar.labels(result) for result in ("similar", *DEGRADED)}
        self.scenarios = ScenarioMetrics(registry)
        self._batch_size = buffers.histogram(definitions.BATCH_SIZE.make(registry))
        self._queue_depth = buffers.gauge(definitions.QUEUE_DEPTH.make(registry))
        self._waiting = 0
        self._queue_wait = buffers.histogram(definitions.QUEUE_WAIT.make(registry))
        events = definitions.EVENTS.make(registry)
        self._events = {
            (event_type, result): buffers.counter(events.labels(event_type, result))
            for event_type in (*self._event_types, OTHER)
            for result in RESULTS
        }
        self._late = definitions.LATE_EVENTS.make(registry)
        self._lag = buffers.histogram(definitions.EVENT_LAG.make(registry))
        self._unknown = buffers.counter(definitions.UNKNOWN_ITEMS.make(registry))
        store = definitions.STORE_TIMES.make(registry)
        self._store = {op: buffers.histogram(store.labels(op)) for op in OPERATIONS}
        errors = definitions.STORE_ERRORS.make(registry)
        self._store_errors = {kind: errors.labels(kind) for kind in ERROR_KINDS}
        self._store_gauges = StoreGauges(registry)
        self.catalogue = CatalogueMetrics(registry)
        self._connections = buffers.gauge(definitions.CONNECTIONS.make(registry))
        self.model = ModelMetrics(registry)
        workers = WorkerMetrics(registry)
        if METRICS_FOLDER not in os.environ:
            workers.workers_seen(configured=1, missing=0)
        self._loop_lag = buffers.histogram(definitions.LOOP_LAG.make(registry))
        self._process = ProcessMetrics(registry)
        buffers.add(self._process.flush)

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

    def answered(self, *, source: str, degraded: Degraded | None, version: str, variant: AnsweringVariant) -> None:
        """Count a recommendation."""
        self.answers.inc(source, version, variant)
        if degraded is not None:
            self._fallbacks[degraded].inc()

    def shed(self, reason: Shed) -> None:
        """Count a request over a limit."""
        self._shed[reason].inc()

    def explained(self, result: Explained) -> None:
        """Count an answer of the model whose reasons were asked for."""
        self._explained[result].inc()

    def filtered(self, plan: Plan) -> None:
        """Count a request with a filter."""
        self._filtered[plan].inc()

    def found_similar(self, degraded: Degraded | None) -> None:
        """Count an answer by taste, or why it holds other items."""
        self._similar[degraded or "similar"].inc()

    def batch_started(self, size: int) -> None:
        """Count a batch."""
        self._batch_size.observe(size)

    def waited(self, seconds: float) -> None:
        """Record the queue time of a request."""
        self._queue_wait.observe(seconds)

    def queue_changed(self, by: int) -> None:
        """Change the number of waiting requests."""
        self._waiting += by
        self._queue_depth.set(self._waiting)

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
        self._store_gauges.update(state)

    def built(self, *, version: str, onnxruntime: str) -> None:
        """Describe the running versions."""
        self._process.built(version=version, onnxruntime=onnxruntime)

    def flush(self) -> None:
        """Flush all buffered metrics. Call it on the event loop's thread, which also writes them."""
        self._buffers.flush()

    async def keep_flushed(self) -> None:
        """Flush every FLUSH_S seconds, for the other workers' expositions, and record the delay of the loop."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + FLUSH_S
            await asyncio.sleep(FLUSH_S)
            self._loop_lag.observe(max(0.0, loop.time() - due_s))
            self.flush()

    async def read(self, names: frozenset[str] | None = None) -> bytes:
        """`expose` in a thread. Callers that arrive during an exposition and want the same share the next one."""
        if names not in self._expositions:
            self._expositions[names] = asyncio.create_task(self._render(names))
        return await asyncio.shield(self._expositions[names])

    async def _render(self, names: frozenset[str] | None) -> bytes:
        async with self._exposition_lock:
            del self._expositions[names]  # later callers get a newer one
            self.flush()
            return await asyncio.to_thread(self.expose, names)  # with several workers this reads files

    def expose(self, names: Collection[str] | None = None) -> bytes:
        """All metrics in the Prometheus text format, including the other workers' last flushed values.

        With `names` the samples of these names alone.
        """
        return render(self._registry, self._live_scores, names=names)

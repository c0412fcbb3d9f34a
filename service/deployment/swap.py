"""Loads a bundle beside the model in use, exchanges the two on the event loop, and frees the old one."""

import asyncio
import gc
import logging
import sys
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from typing import Final, ParamSpec, TypeVar

from model.contract.bundle import OpenBundle
from service.inference.engine import Engine
from service.inference.loading import Loaded, load_configured
from service.inference.model import LiveModel
from service.recommend.recommender import Recommender
from service.recommend.variant import Variant
from service.recommend.variants import Variants
from service.settings import Settings
from service.store.history import HistoryStore
from service.system.memory import MIB, give_back_memory, read_resident_bytes
from service.system.pauses import LoopWatch
from service.telemetry.metrics import Metrics

LOAD_SWITCH_S: Final = 0.001
"""Python's thread switch interval while a model is loaded, a fifth of its own: the parts in Python yield sooner."""

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Swapper:
    """Exchanges the champion. `swap` and `adopt` are called from a thread beside the loop, one call at a time."""

    def __init__(
        self,
        settings: Settings,
        *,
        recommender: Recommender,
        store: HistoryStore,
        metrics: Metrics,
        make_variant: Callable[[Loaded], Variant],
    ) -> None:
        self._settings = settings
        self._recommender = recommender
        self._store = store
        self._metrics = metrics
        self._make_variant = make_variant
        self._engines: weakref.WeakSet[Engine] = weakref.WeakSet([recommender.variants.champion.model.engine])

    def swap(self, bundle: OpenBundle, *, generation: int, began_s: float, loop: asyncio.AbstractEventLoop) -> None:
        """Let a bundle answer from now on. Raises ModelRefused, and the old model answers on.

        `began_s` is when the change was noticed, by time.monotonic.
        """
        watch = LoopWatch()
        call(loop, watch.start)
        try:
            before = [self._exchange(self._load(bundle), generation, loop)]
        finally:
            call(loop, watch.stop)
        seconds = time.monotonic() - began_s
        self._metrics.model.swapped(seconds=seconds, pause_s=watch.longest_s)
        self._retire(before, loop)
        resident = read_resident_bytes()
        _log.info(
            "Now serving %s",
            f"{bundle.manifest.name} {bundle.manifest.version}",
            extra={
                "fields": {
                    "generation": generation,
                    "seconds": round(seconds, 3),
                    "loop_stood_s": round(watch.longest_s, 4),
                    "resident_mib": None if resident is None else resident // MIB,
                }
            },
        )

    def adopt(self, generation: int, *, loop: asyncio.AbstractEventLoop) -> None:
        """Take over another generation of the deployment, in which the same version answers."""
        call(loop, lambda: self._recommender.exchange(replace(self._recommender.variants, generation=generation)))

    def count_models(self) -> None:
        """Tell the metrics how many models are in memory: one whose run never ends stays."""
        self._metrics.model.models_loaded(len(self._engines))

    def _load(self, bundle: OpenBundle) -> Variant:
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(LOAD_SWITCH_S)
        try:
            variant = self._make_variant(load_configured(self._settings, bundle))
        finally:
            sys.setswitchinterval(interval_s)
        self._engines.add(variant.model.engine)
        self.count_models()
        return variant

    def _exchange(self, variant: Variant, generation: int, loop: asyncio.AbstractEventLoop) -> Variants:
        def exchange() -> Variants:
            variants = Variants(generation, variant)
            # Until the old variant has answered, histories are read as either of them wants.
            self._store.reads_events = self._store.reads_events or variants.read_events
            variant.start()
            self._metrics.answers.expect(variant.version, variant.name)
            describe_model(self._metrics, variant.model)
            return self._recommender.exchange(variants)

        return call(loop, exchange)

    def _retire(self, before: list[Variants], loop: asyncio.AbstractEventLoop) -> None:
        """Close what answered before, and free its memory. It leaves the list: no frame may keep it."""

        def finish() -> None:
            self._store.reads_events = self._recommender.variants.read_events

        left = [variant for variant in before.pop().all if variant not in self._recommender.variants.all]
        for variant in left:
            closing = variant.close(within_s=variant.runner.stuck_after_s)
            if not asyncio.run_coroutine_threadsafe(closing, loop).result():
                _log.error("A model was left behind: its last run does not end")
        call(loop, finish)
        engines = [weakref.ref(variant.model.engine) for variant in left]
        del left, variant
        if any(engine() is not None for engine in engines):
            gc.collect()  # none is expected to be part of a cycle, but a traceback may hold one
        give_back_memory()
        self.count_models()


def describe_model(metrics: Metrics, model: LiveModel) -> None:
    """Tell the metrics which model answers."""
    manifest = model.manifest
    metrics.model.serves(
        name=manifest.name,
        version=manifest.version,
        provider=model.engine.provider,
        digest=model.digest,
        trained_at_s=_epoch_seconds(manifest.trained_at),
    )


def call(loop: asyncio.AbstractEventLoop, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function on a loop of another thread, and wait for its result. Raises RuntimeError if the loop ended."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - passed on to the caller
            future.set_exception(error)

    loop.call_soon_threadsafe(run)
    return future.result()


def _epoch_seconds(moment: str) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None

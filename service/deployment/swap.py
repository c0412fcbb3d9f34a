"""Loads a bundle beside the model in use, exchanges the two on the event loop, and frees the old one."""

import asyncio
import gc
import logging
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from typing import Final, ParamSpec, TypeVar

from model.contract.bundle import OpenBundle
from model.contract.deployment.document import Deployment
from service.inference.engine import Engine
from service.inference.loading import Loaded, load_configured
from service.inference.model import LiveModel
from service.ranking.recommendation_id import RecommendationIds
from service.recommend.recommender import Recommender
from service.recommend.variant import Variant
from service.recommend.variants import Variants
from service.settings import Settings
from service.store.history import HistoryStore
from service.store.variant_counts import VariantTally
from service.system.memory import MIB, give_back_memory, read_resident_bytes
from service.system.pauses import LoopWatch
from service.telemetry.metrics import Metrics

LOAD_SWITCH_S: Final = 0.001
"""Python's thread switch interval while a model is loaded, a fifth of its own: the parts in Python yield sooner."""

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Swapper:
    """Exchanges who answers. Its methods are called from a thread beside the loop, one call at a time."""

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
        self._engines: weakref.WeakSet[Engine] = weakref.WeakSet(
            variant.model.engine for variant in recommender.variants.all
        )

    def swap(
        self, bundle: OpenBundle, deployment: Deployment, *, began_s: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Let a bundle be the champion from now on. Raises ModelRefused, and the old model answers on.

        `began_s` is when the change was noticed, by time.monotonic.
        """
        watch = LoopWatch()
        call(loop, watch.start)
        try:
            before = [self._exchange(deployment, loop, champion=self._load(bundle))]
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
                    "generation": deployment.generation,
                    "seconds": round(seconds, 3),
                    "loop_stood_s": round(watch.longest_s, 4),
                    "resident_mib": None if resident is None else resident // MIB,
                }
            },
        )

    def load_candidate(self, bundle: OpenBundle, deployment: Deployment, *, loop: asyncio.AbstractEventLoop) -> None:
        """Let a bundle answer the candidate's users from now on. Raises ModelRefused, and the champion answers them."""

        def enter(candidate: Variant) -> None:
            champion = self._recommender.variants.champion
            before = [self._exchange(deployment, loop, champion=champion, candidate=candidate)]
            self._retire(before, loop)  # it may have been loaded for comparison

        self._load_beside(bundle, deployment, enter, loop=loop, says="Serving the candidate %s")

    def load_compared(self, bundle: OpenBundle, deployment: Deployment, *, loop: asyncio.AbstractEventLoop) -> None:
        """Let a bundle answer the requests that name its version from now on. Raises ModelRefused."""

        def enter(variant: Variant) -> None:
            now = self._recommender.variants
            compared = [*(one for one in now.compared if one.version != variant.version), variant]
            before = [
                self._exchange(deployment, loop, champion=now.champion, candidate=now.candidate, compared=compared)
            ]
            del now
            self._retire(before, loop)

        self._load_beside(bundle, deployment, enter, loop=loop, says="Serving %s for comparison")

    def _load_beside(
        self,
        bundle: OpenBundle,
        deployment: Deployment,
        enter: Callable[[Variant], None],
        *,
        loop: asyncio.AbstractEventLoop,
        says: str,
    ) -> None:
        watch = LoopWatch()
        call(loop, watch.start)
        try:
            enter(self._load(bundle))
        finally:
            call(loop, watch.stop)
        _log.info(
            says,
            f"{bundle.manifest.name} {bundle.manifest.version}",
            extra={"fields": {"generation": deployment.generation, "loop_stood_s": round(watch.longest_s, 4)}},
        )

    def withdraw(self, *, loop: asyncio.AbstractEventLoop) -> None:
        """Let the champion answer the candidate's users, in the same generation, and free the candidate's memory."""
        recommender = self._recommender
        before = [call(loop, lambda: recommender.exchange(replace(recommender.variants, candidate=None)))]
        self._retire(before, loop)

    def promote(self, deployment: Deployment, *, loop: asyncio.AbstractEventLoop) -> None:
        """Let the candidate that answers its users answer all. Nothing is loaded."""
        began_s, variants = time.monotonic(), self._recommender.variants
        if variants.candidate is None:
            raise RuntimeError("there is no candidate to promote")
        before = [self._exchange(deployment, loop, champion=variants.candidate)]
        del variants
        self._metrics.model.swapped(seconds=time.monotonic() - began_s, pause_s=0.0)
        _log.info(
            "Serving the candidate %s to all",
            self._recommender.variants.champion.version,
            extra={"fields": {"generation": deployment.generation}},
        )
        self._retire(before, loop)

    def adopt(self, deployment: Deployment, *, loop: asyncio.AbstractEventLoop) -> None:
        """Take over another generation of the deployment, in which the same versions answer, whatever the share."""
        variants = self._recommender.variants
        self._exchange(deployment, loop, champion=variants.champion, candidate=variants.candidate)

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

    def _exchange(
        self,
        deployment: Deployment,
        loop: asyncio.AbstractEventLoop,
        *,
        champion: Variant,
        candidate: Variant | None = None,
        compared: Sequence[Variant] | None = None,
    ) -> Variants:
        """Let these answer, as the deployment wants it; the compared ones stay if none are given.

        Returns what answered before.
        """

        def exchange() -> Variants:
            before = self._recommender.variants
            others = before.compared if compared is None else compared
            variants = make_variants(deployment, before, champion=champion, candidate=candidate, compared=others)
            # Until the old variants have answered, histories are read as any of them wants.
            self._store.reads_events = self._store.reads_events or variants.read_events
            for variant in variants.all:
                if variant not in before.all:
                    variant.start()
            self._recommender.exchange(variants)
            for variant in variants.all:
                self._metrics.answers.expect(variant.version, variant.name)
            if champion is not before.champion:
                describe_model(self._metrics, champion.model)
                champion.monitor.first_runs.begin()
            return before

        return call(loop, exchange)

    def _retire(self, before: list[Variants], loop: asyncio.AbstractEventLoop) -> None:
        """Close what answered before, and free its memory. It leaves the list: no frame may keep it."""

        def finish() -> None:
            self._store.reads_events = self._recommender.variants.read_events

        left = [variant for variant in before.pop().all if variant not in self._recommender.variants.all]
        engines = [weakref.ref(variant.model.engine) for variant in left]
        while left:
            closing = left[-1].close(within_s=left[-1].runner.stuck_after_s)
            if not asyncio.run_coroutine_threadsafe(closing, loop).result():
                _log.error("A model was left behind: its last run does not end")
            left.pop()
        call(loop, finish)
        if any(engine() is not None for engine in engines):
            gc.collect()  # none is expected to be part of a cycle, but a traceback may hold one
        give_back_memory()
        self.count_models()


def make_variants(
    deployment: Deployment,
    before: Variants,
    *,
    champion: Variant,
    candidate: Variant | None,
    compared: Sequence[Variant] = (),
) -> Variants:
    """Who answers by a deployment, with what is loaded. What was counted of a generation goes on being counted.

    Of the compared ones those stay that neither champion nor candidate is a version of.
    """
    named = {champion.version, None if candidate is None else candidate.version}
    canary = deployment.mode == "canary" and deployment.candidate is not None
    is_counted = (before.folder_id, before.generation) == (deployment.folder_id, deployment.generation)
    counted = before.tally if is_counted else None
    return Variants(
        deployment.generation,
        champion,
        candidate,
        share=deployment.share if canary else 0.0,
        salt=deployment.salt,
        ids=before.ids if before.ids.key == deployment.id_key else RecommendationIds(deployment.id_key),
        tally=(counted or VariantTally()) if canary else None,
        folder_id=deployment.folder_id,
        compared=tuple(variant for variant in compared if variant.version not in named),
    )


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

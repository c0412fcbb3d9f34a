"""Metrics of the models: which one answers, how often it was swapped, and what each version answered."""

import os
from collections import OrderedDict
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter

from service.telemetry import definitions
from service.telemetry.buffered import Buffers
from service.telemetry.multiprocess import METRICS_FOLDER

VERSIONS: Final = 16
"""How many versions have series of their own, the last ones that this process served."""
OTHER_VERSION: Final = "other"
SOURCES: Final = ("model", "neighbours", "rules", "popular")
Reload = Literal["swapped", "refused", "malformed"]
RELOADS: tuple[Reload, ...] = get_args(Reload)
VariantFallback = Literal["not_loaded", "unpublished", "breaker_open", "full", "stopped", "slow", "failed"]
VARIANT_FALLBACKS: tuple[VariantFallback, ...] = get_args(VariantFallback)


class ModelMetrics:
    """Which model answers, and what became of the attempts to change it. Set from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._info = definitions.MODEL_INFO.make(registry)
        self._trained = definitions.MODEL_TRAINED.make(registry)
        reloads = definitions.MODEL_RELOADS.make(registry)
        self._reloads = {result: reloads.labels(result) for result in RELOADS}
        self._reload_times = definitions.MODEL_RELOAD_TIMES.make(registry)
        self._pauses = definitions.MODEL_SWAP_PAUSES.make(registry)
        self._loaded = definitions.MODELS_LOADED.make(registry)
        self._refused = definitions.MODEL_REFUSED.make(registry)
        self._generation = definitions.DEPLOYMENT_GENERATION.make(registry)
        fallbacks = definitions.VARIANT_FALLBACKS.make(registry)
        self._variant_fallbacks = {reason: fallbacks.labels(reason) for reason in VARIANT_FALLBACKS}
        self._variant_breakers = definitions.VARIANT_BREAKERS.make(registry)
        self._labels: tuple[str, ...] | None = None

    def serves(self, *, name: str, version: str, provider: str, digest: str, trained_at_s: float | None) -> None:
        """Describe the model that answers from now on."""
        labels = (name, version, provider, digest)
        if self._labels not in (None, labels):
            self._info.labels(*self._labels).set(0)  # what several workers share cannot be removed
            if METRICS_FOLDER not in os.environ:
                self._info.remove(*self._labels)
        self._labels = labels
        self._info.labels(*labels).set(1)
        if trained_at_s is not None:
            self._trained.set(trained_at_s)

    def reloaded(self, result: Reload) -> None:
        """Count an attempt to serve another deployment."""
        self._reloads[result].inc()

    def swapped(self, *, seconds: float, pause_s: float) -> None:
        """Count a swap: how long it took, and the longest time that the event loop stood meanwhile."""
        self.reloaded("swapped")
        self._reload_times.observe(seconds)
        self._pauses.observe(pause_s)

    def models_loaded(self, count: int) -> None:
        """Set how many models are in memory."""
        self._loaded.set(count)

    def refused(self, *, now: bool) -> None:
        """Say whether the version that should answer is refused."""
        self._refused.set(now)

    def follows(self, generation: int) -> None:
        """Set the generation of the deployment that answers."""
        self._generation.set(generation)

    def fell_back(self, reason: VariantFallback) -> None:
        """Count an answer that the champion made for a user of the candidate."""
        self._variant_fallbacks[reason].inc()

    def breaker_opened(self) -> None:
        """Count that the candidate was taken out of use."""
        self._variant_breakers.inc()


class AnswerCounter:
    """Counts recommendations by source, version and variant, buffered. Versions before the last VERSIONS are `other`.

    Where several workers share their metrics, series of older versions stay, but count no more.
    """

    def __init__(self, counter: Counter, buffers: Buffers) -> None:
        self._counter = counter
        self._counts: dict[tuple[str, str, str], int] = {}
        self._versions: OrderedDict[str, None] = OrderedDict()
        buffers.add(self.flush)

    def expect(self, version: str, variant: str) -> None:
        """Make the series of a version that answers from now on, at 0."""
        self._versions[version] = None
        self._versions.move_to_end(version)
        for source in SOURCES:
            self._add((source, version, variant))
        if len(self._versions) > VERSIONS:
            self._forget(self._versions.popitem(last=False)[0])

    def inc(self, source: str, version: str, variant: str) -> None:
        """Count an answer."""
        key = (source, version, variant)
        if key in self._counts:
            self._counts[key] += 1
            return
        key = (source, version if version in self._versions else OTHER_VERSION, variant)
        self._add(key)
        self._counts[key] += 1

    def flush(self) -> None:
        """Pass the buffered counts to prometheus_client."""
        for key, count in self._counts.items():
            if count:
                self._counter.labels(*key).inc(count)
                self._counts[key] = 0

    def _add(self, key: tuple[str, str, str]) -> None:
        if key not in self._counts:
            self._counts[key] = 0
            self._counter.labels(*key)

    def _forget(self, version: str) -> None:
        self.flush()
        for key in [key for key in self._counts if key[1] == version]:
            del self._counts[key]
            if METRICS_FOLDER not in os.environ:
                self._counter.remove(*key)

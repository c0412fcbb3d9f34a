"""Metrics as text for Prometheus, of this process or of all workers together."""

import itertools
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from service.telemetry import definitions
from service.telemetry.multiprocess import METRICS_FOLDER, lock_readers

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

DEPRECATED: Final = {
    definitions.RECOMMENDATIONS.name: "nextitem_recommend_total",
    definitions.FALLBACKS.name: "nextitem_fallback_total",
}
"""Counters that were renamed, and their old names, which are exposed for one release."""

_TOTAL: Final = "_total"


def render(registry: CollectorRegistry, *others: Collector, names: Collection[str] | None = None) -> bytes:
    """A registry in the Prometheus text format. With several workers: the last flushed values of all of them.

    `others` are the same in every worker. With `names` the samples of these names alone, for a fraction of the time.
    """
    folder = os.environ.get(METRICS_FOLDER)
    if folder is None:
        return _write(registry if names is None else _restrict(registry, names), *others, names=names)
    with lock_readers(Path(folder), alone=False):
        everyone = MultiProcessCollector(None)  # type: ignore[no-untyped-call]  # the library leaves it untyped
        return _write(everyone, *others, names=names)


def _restrict(registry: CollectorRegistry, names: Collection[str]) -> Collector:
    """What a registry has under some names, and under those that were renamed to them."""
    return registry.restricted_registry({*names, *(new for new, old in DEPRECATED.items() if old in names)})


def _write(*sources: Collector, names: Collection[str] | None) -> bytes:
    exposed = _Exposed(*sources)
    return generate_latest(exposed if names is None else _Named(exposed, names))


class _Named(Collector):
    """The samples of a collector that have one of some names."""

    def __init__(self, source: Collector, names: Collection[str]) -> None:
        self._source, self._names = source, names

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics that have such samples, with these alone."""
        for metric in self._source.collect():
            samples = [sample for sample in metric.samples if sample.name in self._names]
            if samples:
                named = Metric(metric.name, metric.documentation, metric.type)
                named.samples = samples
                yield named


class _Exposed(Collector):
    """Several collectors as one. Adds each renamed counter once more under its old name."""

    def __init__(self, *sources: Collector) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        """Yield the sources' metrics. A renamed counter is followed by its alias, with the same labels and values."""
        for metric in itertools.chain.from_iterable(source.collect() for source in self._sources):
            yield metric
            name = metric.name + _TOTAL
            if name in DEPRECATED:
                old = DEPRECATED[name]
                alias = Metric(old.removesuffix(_TOTAL), f"Deprecated: use {name}", metric.type)
                alias.samples = [sample._replace(name=old) for sample in metric.samples]
                yield alias

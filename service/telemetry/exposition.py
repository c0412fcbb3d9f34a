"""Metrics as text for Prometheus, of this process or of all workers together."""

import os
from collections.abc import Iterable
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


def render(registry: CollectorRegistry) -> bytes:
    """A registry in the Prometheus text format. With several workers: the last flushed values of all of them."""
    folder = os.environ.get(METRICS_FOLDER)
    if folder is None:
        return generate_latest(_WithOldNames(registry))
    with lock_readers(Path(folder), alone=False):
        everyone = MultiProcessCollector(None)  # type: ignore[no-untyped-call]  # the library leaves it untyped
        return generate_latest(_WithOldNames(everyone))


class _WithOldNames(Collector):
    """Adds each renamed counter once more under its old name."""

    def __init__(self, source: Collector) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        """Yield the source's metrics. A renamed counter is followed by its alias, with the same labels and values."""
        for metric in self._source.collect():
            yield metric
            name = metric.name + _TOTAL
            if name in DEPRECATED:
                old = DEPRECATED[name]
                alias = Metric(old.removesuffix(_TOTAL), f"Deprecated: use {name}", metric.type)
                alias.samples = [sample._replace(name=old) for sample in metric.samples]
                yield alias

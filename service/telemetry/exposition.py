"""Metrics as text for Prometheus, of this process or of all workers together."""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector

from service.telemetry.multiprocess import METRICS_FOLDER, lock_readers

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def render(registry: CollectorRegistry) -> bytes:
    """A registry in the Prometheus text format. With several workers: the last flushed values of all of them."""
    folder = os.environ.get(METRICS_FOLDER)
    if folder is None:
        return generate_latest(registry)
    with lock_readers(Path(folder), alone=False):
        return generate_latest(MultiProcessCollector(None))  # type: ignore[no-untyped-call]  # the library leaves it so

"""Metrics of the live catalogue: the version that a worker knows, and the answers that may lack changes."""

from prometheus_client import CollectorRegistry

from service.telemetry import definitions


class CatalogueMetrics:
    """Counts and gauges of one worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._version = definitions.CATALOGUE_VERSION.make(registry)
        self._behind = definitions.CATALOGUE_BEHIND.make(registry)

    def reached(self, version: int) -> None:
        """This worker knows the catalogue up to this version."""
        self._version.set(version)

    def answered_behind(self) -> None:
        """Count an answer that may lack changes."""
        self._behind.inc()

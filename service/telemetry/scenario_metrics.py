"""Metrics of scenarios: what each of them was answered by, and whether their file can be used."""

from collections.abc import Iterable
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter

from service.api.responses import Source
from service.telemetry import definitions

NAMES: Final = 64
"""How many names have series of their own in a process, the first ones: as many as a file may have."""
OTHER_SCENARIO: Final = "other"


class ScenarioMetrics:
    """Counts and gauges of one worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = definitions.SCENARIOS.make(registry)
        self._refused = definitions.SCENARIOS_REFUSED.make(registry)
        self._answers: dict[tuple[str, str], Counter] = {}
        self._names: set[str] = set()
        self._add(OTHER_SCENARIO)

    def expect(self, names: Iterable[str]) -> None:
        """Make the series of scenarios that requests may name from now on, at 0."""
        for name in names:
            if name not in self._names and len(self._names) < NAMES:
                self._names.add(name)
                self._add(name)

    def answered(self, name: str, source: Source) -> None:
        """Count an answer to a request that named a scenario."""
        self._answers[name if name in self._names else OTHER_SCENARIO, source].inc()

    def refused(self, *, now: bool) -> None:
        """Say whether the file cannot be used as it is."""
        self._refused.set(now)

    def _add(self, name: str) -> None:
        for source in get_args(Source):
            self._answers[name, source] = self._counter.labels(name, source)

"""The scenarios that requests may name, read anew when their file changes."""

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from service.errors import FieldError, Invalid, ScenariosUnusable
from service.scenarios.file import read_scenarios
from service.scenarios.scenario import Scenario
from service.system.fingerprint import stat_fingerprint
from service.telemetry.scenario_metrics import ScenarioMetrics

RELOAD_S = 1.0
"""Shortest interval between looks at the file, and so how long its last version may still answer."""
LISTED = 200
"""Characters of names that an error lists, and then no further name."""

_log = logging.getLogger(__name__)


class LiveScenarios:
    """Of one worker. Without a file there are none.

    A new version of the file that cannot be used changes nothing: the one before goes on, and the log and a metric say
    so. It is tried again every RELOAD_S that somebody asks.
    """

    def __init__(self, file: Path | None, metrics: ScenarioMetrics) -> None:
        """Read the file. Raises ScenariosUnusable."""
        self._file = file
        self._metrics = metrics
        self._scenarios: Mapping[str, Scenario] = {}
        self._fingerprint: tuple[int, ...] | None = None
        """The file's when it was last read; None if it could not be used."""
        self._fault: str | None = None
        self._checked_s = time.monotonic()
        if file is not None:
            self._take(file)

    def find(self, name: object) -> Scenario | None:
        """The scenario of this name; None for what is no string, which validation refuses or holds for none.

        Raises Invalid if there is no such scenario.
        """
        if not isinstance(name, str):
            return None
        if self._file is not None:
            self._reload_if_changed(self._file)
        found = self._scenarios.get(name)
        if found is None:
            raise Invalid([FieldError("/scenario", "unknown_scenario", self._name_scenarios())])
        return found

    def _reload_if_changed(self, file: Path) -> None:
        now_s = time.monotonic()
        if now_s - self._checked_s < RELOAD_S:
            return
        self._checked_s = now_s
        if self._fingerprint is not None and stat_fingerprint(file) == self._fingerprint:
            return
        try:
            self._take(file)
        except ScenariosUnusable as error:
            self._fingerprint = None
            self._metrics.refused(now=True)
            if str(error) != self._fault:
                self._fault = str(error)
                _log.error(
                    "Scenarios file cannot be used: the scenarios from before it go on",
                    extra={"fields": {"why": self._fault}},
                )
        else:
            _log.info("Scenarios file reloaded", extra={"fields": {"scenarios": len(self._scenarios)}})

    def _take(self, file: Path) -> None:
        fingerprint = stat_fingerprint(file)  # before it is read: what changes meanwhile is read again
        self._scenarios = read_scenarios(file)
        self._fingerprint, self._fault = fingerprint, None
        self._metrics.expect(self._scenarios)
        self._metrics.refused(now=False)

    def _name_scenarios(self) -> str:
        """What an error says of the scenarios that there are."""
        if not self._scenarios:
            return "the service has no scenarios: they are in the file that it is given by --scenarios"
        listed = list(self._list_names())
        rest = len(self._scenarios) - len(listed)
        more = f" and {rest} more" if rest else ""
        return f"must be a scenario of the service, which are: {', '.join(listed)}{more}"

    def _list_names(self) -> Iterator[str]:
        characters = 0
        for name in self._scenarios:
            characters += len(name)
            if characters > LISTED:
                return
            yield name

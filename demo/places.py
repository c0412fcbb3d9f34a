"""Where the second day is played: with a service of its own, or with the one of docker compose (demo/stack.py)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import httpx

from demo.commands import ask, manage
from demo.live import look

ARCHIVE = "archive"


@dataclass
class Place(ABC):
    """A service that runs, and what the day needs beside it."""

    client: httpx.Client
    folder: Path
    """Where runs and the day's documents are kept."""
    bundles: Path
    archive: Path
    log: str
    """What to look at when something is late."""
    began: int = 0
    """The deployment's generation before the day."""

    @abstractmethod
    def models(self, command: str, *options: str) -> None:
        """A sub-command of `nextitem-serve models`; with `--wait` every worker follows. Raises DemoFailed."""

    @abstractmethod
    def archive_now(self) -> None:
        """Have all events in the archive. Raises DemoFailed."""

    @abstractmethod
    def has_judged(self, events: int) -> bool:
        """Whether the judge has dealt with what was sent so far, which is so many events of this day."""

    def read_journal(self) -> str:
        """The journal's lines, as JSON."""
        return ask("models", "--bundle", str(self.bundles), "journal", "--json")

    def name_champion(self) -> str:
        """The version that answers."""
        return str(self.client.get("/model").json()["version"])


@dataclass
class OwnService(Place):
    """A service that was started for the day, with an embedded store, and nobody else's events."""

    def models(self, command: str, *options: str) -> None:
        store = str(self.archive.parent)
        manage("models", "--bundle", str(self.bundles), "--data-dir", store, command, *options)

    def archive_now(self) -> None:
        manage("archive", "--once", "--archive-dir", str(self.archive))

    def has_judged(self, events: int) -> bool:
        return look(self.client).seen >= events

"""A version that should answer and cannot be used: remembered, retried ever later, never given up for good."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.api.model_responses import RefusedModel
from service.api.timestamps import format_rfc_3339
from service.errors import ModelRefused

RETRY_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds until the next try, the last one for all later ones. Other files or another generation are tried at once."""
FAILING: Final = "failing"
"""The code of a champion that answered, and whose engine failed at once: the worker went back to the one before."""


@dataclass(frozen=True)
class Refusal:
    """Which version is refused, why, and since when in milliseconds since 1970."""

    version: str
    code: str
    sentence: str
    since_ms: int
    generation: int
    """Of the deployment that named the version when it was last refused."""

    def describe(self) -> RefusedModel:
        """What clients are told."""
        return RefusedModel(version=self.version, code=self.code, since=format_rfc_3339(self.since_ms))


class Retries:
    """Decides when a version that was refused is tried again. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wanted: tuple[object, ...] | None = None
        self._failures = 0
        self._due_s = float("-inf")
        self.refusal: Refusal | None = None
        """The last refusal, None once the wanted version serves."""

    def is_due(self, wanted: tuple[object, ...]) -> bool:
        """Whether to try now. `wanted` is what was asked for, with the state of its files: anything new is due."""
        if wanted != self._wanted:
            self._wanted, self._failures = wanted, 0
            return True
        return self._clock() >= self._due_s

    def refuse(self, version: str, refused: ModelRefused, *, generation: int) -> bool:
        """Note a failed try in a generation. Returns whether it is news: another version, or another reason."""
        self.delay()
        known = self.refusal
        is_news = known is None or (known.version, known.code) != (version, refused.code)
        since_ms = int(time.time() * 1000) if known is None or known.version != version else known.since_ms
        self.refusal = Refusal(version, refused.code, str(refused), since_ms, generation)
        return is_news

    def delay(self) -> None:
        """Wait before the next try, longer each time."""
        self._due_s = self._clock() + RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1

    def hold(self, wanted: tuple[object, ...]) -> None:
        """Do not try this again until something else is asked for, or other files."""
        self._wanted, self._due_s = wanted, float("inf")

    def clear(self) -> None:
        """The wanted version serves."""
        self._wanted, self._failures, self.refusal = None, 0, None


def describe_folder(folder: Path) -> str:
    """Names, sizes and times of a version's files: another text when any was added, written or replaced."""
    try:
        states = [(file.name, file.stat()) for file in sorted(folder.iterdir())]
    except OSError as error:
        return f"unreadable: {error.errno}"
    return " ".join(f"{name}:{state.st_ino}:{state.st_size}:{state.st_mtime_ns}" for name, state in states)

"""The progress of a run, the record of each epoch, and who is told of both."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self


@dataclass
class Progress:
    """The progress of a run. Resuming needs it, the weights and the optimizer state, and nothing else."""

    epoch: int = 0
    """Epochs completed."""
    step: int = 0
    """Steps taken within the epoch under way."""
    updates: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of all threads of this process. Time in which a busy machine let it wait is in `seconds` alone."""
    epoch_seconds: float = 0.0
    epoch_loss: float = 0.0
    """Sum of the losses of trained positions in the epoch under way."""
    epoch_places: int = 0
    epoch_tokens: int = 0
    best: float = -1.0
    kept_epoch: int = 0
    """The epoch whose weights are kept: the best one, or the last one (`train.keep`)."""
    stale: int = 0
    """Epochs since the best one."""
    finished: str = ""
    """Why the run ended, or nothing while it has not."""


@dataclass(frozen=True)
class Epoch:
    """The record of an epoch: a line of metrics.jsonl."""

    epoch: int
    loss: float
    learning_rate: float
    seconds: float
    tokens_per_second: float
    validation: Mapping[str, float]


class Tracker(Protocol):
    """Who is told of a training while it goes on."""

    def note_step(self, progress: Progress, loss: float) -> None:
        """About once a second: the progress, and the mean loss so far in this epoch."""

    def note_epoch(self, epoch: Epoch, progress: Progress) -> None:
        """After each epoch: its record, and the progress behind it."""


class RunTracker(Tracker, Protocol):
    """Who is told of a whole run: entered before its first step, and left when it has results or was stopped."""

    def note_results(self, results: Mapping[str, Any]) -> None:
        """What the test came to: the content of results.json."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

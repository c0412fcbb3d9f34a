"""The progress of a run, and the record of each epoch."""

from collections.abc import Mapping
from dataclasses import dataclass


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

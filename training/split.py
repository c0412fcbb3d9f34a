"""Leave-one-out: the last event tests, the one before validates, the rest trains (Sun et al. 2019, section 4.2)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.histories import Histories
from training.log import Log

PROTOCOL = "P2: leave-one-out, all items ranked, seen items removed"
"""What every number of this trainer was measured by. History at validation is train, at test train + validation."""

MIN_EVENTS = 3
"""Users with fewer only train."""


@dataclass(frozen=True)
class Questions:
    """B histories with the item (B) that really came next."""

    histories: Histories
    targets: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, rows: NDArray[np.int64]) -> "Questions":
        """Some of the questions, in the order of `rows`."""
        return Questions(self.histories.select(rows), self.targets[rows])


@dataclass(frozen=True)
class Split:
    """A log cut in three. `train` has a history for every user, the questions for users with MIN_EVENTS events."""

    train: Histories
    validation: Questions
    test: Questions


def leave_one_out(log: Log) -> Split:
    """Cut a log by leave-one-out."""
    starts, ends = log.offsets[:-1], log.offsets[1:]
    asked = ends - starts >= MIN_EVENTS
    train = Histories(log.items, starts, ends - 2 * asked)
    first, last = starts[asked], ends[asked]
    return Split(
        train=train,
        validation=Questions(Histories(log.items, first, last - 2), log.items[last - 2]),
        test=Questions(Histories(log.items, first, last - 1), log.items[last - 1]),
    )


def count_items(histories: Histories, item_count: int) -> NDArray[np.int64]:
    """How often each item occurs (V)."""
    counts = np.bincount(histories.flatten()[1], minlength=item_count + 1)
    return counts[1:].astype(np.int64)

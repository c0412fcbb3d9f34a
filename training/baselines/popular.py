"""Popularity, over all time and in the last days."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.histories import Histories
from training.data.split import count_items
from training.errors import DataError

_DAY_MS = 86_400_000


class Popularity:
    """Scores each item by how often it occurs in the training histories."""

    def __init__(self, train: Histories, item_count: int) -> None:
        self.item_count = item_count
        self.counts: NDArray[np.float64] = count_items(train, item_count).astype(np.float64)

    def score(self, histories: Histories) -> Tensor:
        """The counts, the same for every history (B, V)."""
        return torch.from_numpy(self.counts).repeat(len(histories), 1)


class RecentPopularity(Popularity):
    """Counts the last days of the training events alone (Ji et al., SIGIR 2020, "RecentPop").

    Popularity over all time decides among items that did not occur in them. Raises DataError for a log without times.
    """

    def __init__(self, train: Histories, item_count: int, times_ms: NDArray[np.int64] | None, *, days: float) -> None:
        super().__init__(train, item_count)
        if times_ms is None:
            raise DataError("recent-pop needs a log with times; pop does not")
        self.counts = count_recent(train, item_count, times_ms, days) + self.counts / (self.counts.sum() + 1)


def count_recent(histories: Histories, item_count: int, times_ms: NDArray[np.int64], days: float) -> NDArray[np.int64]:
    """How often each item occurs in the last days before the newest event of the histories, that one included (V).

    `times_ms` are of the log that they are slices of.
    """
    positions = histories.find_positions()[1]
    newest = times_ms[positions].max(initial=0)
    recent = histories.items[positions[times_ms[positions] > newest - days * _DAY_MS]]
    return np.bincount(recent, minlength=item_count + 1)[1:].astype(np.int64)

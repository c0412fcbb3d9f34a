"""What a network must beat: popularity and first-order Markov counts, scoring as it does."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.histories import Histories
from training.split import count_items


class Popularity:
    """Scores each item by how often it occurs in the training histories."""

    def __init__(self, train: Histories, item_count: int) -> None:
        self.item_count = item_count
        self.counts = count_items(train, item_count)

    def score(self, histories: Histories) -> Tensor:
        """The counts, for everyone the same (B, V)."""
        return torch.from_numpy(self.counts.astype(np.float64)).repeat(len(histories), 1)


class Markov:
    """Scores each item by how often it followed the last item, popularity below one count deciding between equals."""

    def __init__(self, train: Histories, item_count: int) -> None:
        self.item_count = item_count
        rows, items = train.flatten()
        same = rows[1:] == rows[:-1]
        pairs = items[:-1][same].astype(np.int64) * (item_count + 1) + items[1:][same]
        pairs, self._counts = np.unique(pairs, return_counts=True)
        self._next = pairs % (item_count + 1)
        self._bounds = np.searchsorted(pairs // (item_count + 1), np.arange(item_count + 2))
        popular = count_items(train, item_count)
        self._popular: NDArray[np.float64] = popular / (popular.sum() + 1)

    def score(self, histories: Histories) -> Tensor:
        """Transition counts from each history's last item (B, V). An empty history gets popularity alone."""
        scores = np.tile(self._popular, (len(histories), 1))
        filled = np.flatnonzero(histories.lengths)
        last = histories.items[histories.ends[filled] - 1]
        found = Histories(np.arange(len(self._next), dtype=np.int32), self._bounds[last], self._bounds[last + 1])
        rows, places = found.flatten()
        scores[filled[rows], self._next[places] - 1] += self._counts[places]
        return torch.from_numpy(scores)

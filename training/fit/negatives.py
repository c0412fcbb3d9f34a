"""Items that a sampled loss holds against the target, as score columns; all draws are uniform, with replacement."""

import numpy as np
from numpy.typing import NDArray

from training.data.histories import Histories

_REDRAWS = 20
"""Rounds that draw seen items again. Items still seen after them belong to users who know nearly all items."""


class UnseenItems:
    """Draws items that a user has never met, for each target its own (Kang & McAuley 2018, section III.E)."""

    def __init__(self, train: Histories, item_count: int) -> None:
        rows, items = train.flatten()
        self._item_count = item_count
        self._seen = np.unique(rows * item_count + items - 1)  # ascending; a user's items lie side by side

    def draw(self, rows: NDArray[np.int64], count: int, draw: np.random.Generator) -> NDArray[np.int64]:
        """For each of the rows (M) of `train`, `count` items that are not in it: (M, K)."""
        drawn = draw.integers(0, self._item_count, (len(rows), count))
        for _ in range(_REDRAWS):
            hit = self._is_seen(rows[:, None] * self._item_count + drawn)
            if not hit.any():
                break
            drawn[hit] = draw.integers(0, self._item_count, int(hit.sum()))
        return drawn

    def _is_seen(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        positions = np.minimum(np.searchsorted(self._seen, keys), len(self._seen) - 1)
        found: NDArray[np.bool_] = self._seen[positions] == keys
        return found


def draw_items(item_count: int, shape: int | tuple[int, int], draw: np.random.Generator) -> NDArray[np.int64]:
    """Any items: (K) that all targets of a batch share, for one matrix product of their scores, or (M, K)."""
    return draw.integers(0, item_count, shape)

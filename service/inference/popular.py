"""The popular list: the fallback when there is no history, no store or no engine."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Popular:
    """All items by falling count, ties by item id."""

    order: NDArray[np.int32]
    """(V) item indexes."""
    counts: NDArray[np.int64]
    """(V + 1) by item index."""
    places: NDArray[np.int32]
    """(V + 1) place in `order` by item index."""

    @classmethod
    def from_order(cls, order: NDArray[np.int32], counts: NDArray[np.int64]) -> Self:
        """Take the order (V) of item indexes and the counts (V), count i belonging to index i + 1."""
        places = np.zeros(len(order) + 1, dtype=np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        return cls(order, np.concatenate([[0], counts]), places)

    def rank(
        self, *, exclude: NDArray[np.int32], candidates: NDArray[np.int32] | None, k: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The first k of the catalogue, or of `candidates`, that are not excluded, with their counts."""
        if candidates is None:
            pool = self.order[: k + len(exclude)]  # enough, whatever is excluded
        else:
            pool = np.unique(candidates)
            pool = pool[np.argsort(self.places[pool], kind="stable")]
        best = pool[~np.isin(pool, exclude)][:k]
        return best, self.counts[best]

"""The popular list: the fallback when there is no history, no store or no engine."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from model.contract.allowed import Allowed


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
        self,
        *,
        exclude: NDArray[np.int32],
        candidates: NDArray[np.int32] | None,
        k: int,
        allowed: Allowed | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The first k of the catalogue, or of `candidates`, that are allowed and not excluded, with their counts."""
        enough = k + len(exclude)  # whatever is excluded
        if candidates is not None:
            pool = np.unique(candidates)
            pool = pool if allowed is None else pool[allowed.mask[pool]]
            pool = pool[np.argsort(self.places[pool], kind="stable")]
        elif allowed is None:
            pool = self.order[:enough]
        else:
            pool = self._find_allowed(allowed, min(enough, allowed.count))
        best = pool[~np.isin(pool, exclude)][:k]
        return best, self.counts[best]

    def _find_allowed(self, allowed: Allowed, enough: int) -> NDArray[np.int32]:
        """The first allowed items, at least `enough` of them. Reads no more of the list than twice what it takes."""
        read = enough
        while True:
            pool = self.order[:read]
            pool = pool[allowed.mask[pool]]
            if len(pool) >= enough or read >= len(self.order):
                return pool
            read *= 2

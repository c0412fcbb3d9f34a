"""What follows what: sequential rules and first-order Markov counts."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from model.contract.rules import BELOW_RULES, DECAY, WINDOW
from training.baselines.own_history import Counted
from training.baselines.rules import REACH, count_rules, gather_pairs, scale_rules
from training.baselines.sparse_rows import add_up, count_within, match
from training.data.histories import Histories


class RulesBaseline:
    """Scores each item by how often, and how soon, it followed the items of a history: sequential rules.

    An item of a history has its rules' weights (rules.py) times `decay` for each newer item; the newest
    `window` count. Popularity decides among items that no rule names. Defaults were chosen on validation events of
    ML-1M and Beauty. Rules and popularity are those of other users, unless `leave_own_out` is off.
    """

    def __init__(
        self,
        train: Histories,
        item_count: int,
        *,
        reach: int = REACH,
        decay: float = DECAY,
        window: int = WINDOW,
        leave_own_out: bool = True,
    ) -> None:
        self.item_count = item_count
        self._reach, self._decay, self._window = reach, decay, window
        self._rules = count_rules(train, item_count, reach=reach)
        self._totals: NDArray[np.float64] = self._rules.sum(axis=1)
        self._counted = Counted(train, item_count, leave_own_out=leave_own_out)

    def score(self, histories: Histories) -> Tensor:
        """Decayed sums of rules (B, V). An empty history gets popularity alone."""
        own = self._counted.find_own(histories)
        users, first, then, counts = gather_pairs(own, self._reach)
        rows, items, weights = self._weigh(histories)
        width = self.item_count + 1
        place, used = match(rows * width + items, users * width + first)
        users, then, counts = users[used], then[used], counts[used]
        weights = weights * scale_rules(self._totals[items] - np.bincount(place, counts, minlength=len(items)))
        query = sparse.csr_array((weights, (rows, items)), shape=(len(histories), width))
        scores: NDArray[np.float64] = (query @ self._rules).toarray()
        users, columns, by_own = add_up(users, then - 1, counts * weights[place], self.item_count)
        left = scores[users, columns] - by_own
        scores[users, columns] = np.where(left > _ROUNDING * by_own, left, 0)
        return torch.from_numpy(scores + BELOW_RULES * self._counted.share_others(own))

    def _weigh(self, histories: Histories) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """What the items of each history weigh in it: rows, items and weights, by row and item."""
        rows, items = histories.flatten()
        age = histories.ends[rows] - histories.starts[rows] - 1 - count_within(rows)
        near = age < self._window
        weights: NDArray[np.float64] = self._decay ** age[near].astype(np.float64)
        return add_up(rows[near], items[near], weights, self.item_count + 1)


class Markov:
    """Scores each item by how often it followed the last item, popularity below one count deciding between equals.

    Both are counted of other users, unless `leave_own_out` is off.
    """

    def __init__(self, train: Histories, item_count: int, *, leave_own_out: bool = True) -> None:
        self.item_count = item_count
        first, self._next, self._counts = count_pairs(train, item_count)
        self._bounds = np.searchsorted(first, np.arange(item_count + 2))
        self._counted = Counted(train, item_count, leave_own_out=leave_own_out)

    def score(self, histories: Histories) -> Tensor:
        """Transition counts from each history's last item (B, V). An empty history gets popularity alone."""
        own = self._counted.find_own(histories)
        counts = np.zeros((len(histories), self.item_count))
        last = np.zeros(len(histories), dtype=np.int32)
        filled = np.flatnonzero(histories.lengths)
        last[filled] = histories.items[histories.ends[filled] - 1]
        found = Histories(np.arange(len(self._next), dtype=np.int32), self._bounds[last], self._bounds[last + 1])
        rows, positions = found.flatten()
        counts[rows, self._next[positions] - 1] = self._counts[positions]
        rows, items = own.flatten()
        again = (rows[1:] == rows[:-1]) & (items[:-1] == last[rows[:-1]])
        np.subtract.at(counts, (rows[1:][again], items[1:][again] - 1), 1)
        return torch.from_numpy(counts + self._counted.share_others(own))


def count_pairs(train: Histories, item_count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Which item came right after which, and how often: both by index, in order, and the counts."""
    rows, items = train.flatten()
    same = rows[1:] == rows[:-1]
    pairs = items[:-1][same].astype(np.int64) * (item_count + 1) + items[1:][same]
    pairs, counts = np.unique(pairs, return_counts=True)
    return pairs // (item_count + 1), pairs % (item_count + 1), counts


_ROUNDING = 1e-13  # what is left of a sum when all that went into it is taken off again, and less than any rule of it

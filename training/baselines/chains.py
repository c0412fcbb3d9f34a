"""What follows what: sequential rules and first-order Markov counts."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from model.contract.rules import DECAY, WINDOW, share_below_rules
from training.baselines.rules import count_rules
from training.baselines.sparse_rows import count_within
from training.data.histories import Histories
from training.data.split import count_items


class RulesBaseline:
    """Scores each item by how often, and how soon, it followed the items of a history: sequential rules.

    An item of a history has its rules' weights (rules.py) times `decay` for each newer item; the newest
    `window` count. Popularity decides among items that no rule names. Defaults were chosen on validation events of
    ML-1M and Beauty.
    """

    def __init__(
        self, train: Histories, item_count: int, *, reach: int = 20, decay: float = DECAY, window: int = WINDOW
    ) -> None:
        self.item_count = item_count
        self._decay, self._window = decay, window
        self._rules = count_rules(train, item_count, reach=reach)
        self._popular = share_below_rules(count_items(train, item_count))

    def score(self, histories: Histories) -> Tensor:
        """Decayed sums of rules (B, V). An empty history gets popularity alone."""
        rows, items = histories.flatten()
        age = histories.ends[rows] - histories.starts[rows] - 1 - count_within(rows)
        near = age < self._window
        weights = (self._decay ** age[near], (rows[near], items[near]))
        query = sparse.csr_array(weights, shape=(len(histories), self.item_count + 1))
        return torch.from_numpy((query @ self._rules).toarray() + self._popular)


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
        rows, positions = found.flatten()
        scores[filled[rows], self._next[positions] - 1] += self._counts[positions]
        return torch.from_numpy(scores)

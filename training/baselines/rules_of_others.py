"""The rules beside a network without those of the user who asks: what is evaluated, where all rules are served.

Shapes: B questions, R newest items asked, M rules an item, V items; an asking is an item asked by a question (A).
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from model.contract.vocabulary import PAD
from model.nets.rules import SequentialRules
from training.baselines.own_history import Counted
from training.baselines.rules import REACH, gather_pairs, scale_rules
from training.baselines.sparse_rows import add_up, count_within, find_highest, match
from training.data.histories import Histories


class RulesOfOthers:
    """Rules and the counts that they were cut from, asked of a user as if his history had not been counted."""

    def __init__(self, rules: SequentialRules, counts: sparse.csr_array, train: Histories) -> None:
        """`counts` are what `count_rules` counts in `train`. Their strength stays that of `rules`."""
        self.rules = rules
        self._counted = Counted(train, counts.shape[1], leave_own_out=True)
        self._width: int = counts.shape[1] + 1
        self._totals: NDArray[np.float64] = counts.sum(axis=1)
        entries = counts.tocoo()
        ranked = find_highest(entries.row, entries.col, entries.data, self._width)
        rows = entries.row[ranked].astype(np.int64)
        self._followers: NDArray[np.int64] = entries.col[ranked].astype(np.int64) + 1
        self._counts: NDArray[np.float64] = entries.data[ranked]
        self._starts: NDArray[np.int64] = np.searchsorted(rows, np.arange(self._width + 1))
        keys = rows * self._width + self._followers
        self._by_key: NDArray[np.int64] = np.argsort(keys)
        self._keys: NDArray[np.int64] = keys[self._by_key]

    def lift(self, histories: Histories, item_ids: Tensor) -> Tensor:
        """What is added to the scores at strength 1, item_ids (B, T) being the query of the histories: (B, V)."""
        newest = self.rules.read_newest(item_ids.cpu()).numpy()
        weights = np.zeros((*newest.shape, self.rules.weights.shape[1]), dtype=np.float32)
        followers = np.zeros(weights.shape, dtype=np.int32)
        rows, places = np.nonzero(newest != PAD)
        of, places_within, items, shares = self._choose(histories, rows, newest[rows, places].astype(np.int64))
        weights[rows[of], places[of], places_within] = shares
        followers[rows[of], places[of], places_within] = items
        device = self.rules.weights.device
        mixed = self.rules.mix(torch.from_numpy(weights).to(device), torch.from_numpy(followers).to(device))
        return mixed[:, PAD + 1 : -1]

    def _choose(
        self, histories: Histories, rows: NDArray[np.int64], items: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """The weightiest rules of each asking: which of the A they are of, their places, followers and weights.

        A rule falls back by the asking user's share at most, so that the M best are among the M best of all users and
        as many more as there are own ones.
        """
        M = self.rules.weights.shape[1]
        users, pairs, own = add_up(*self._list_own(histories))
        first = pairs // self._width
        asked = rows * self._width + items
        begin, end = (np.searchsorted(users * self._width + first, asked, side=side) for side in ("left", "right"))
        lengths = np.minimum(M + end - begin, self._starts[items + 1] - self._starts[items])
        of, positions = _span(self._starts[items], lengths)
        left = self._counts[positions]
        whose, taken = _span(begin, end - begin)  # the own rules of each asking
        at, known = match(self._keys, pairs[taken])
        place = self._by_key[at] - self._starts[items[whose[known]]]
        ranked = np.flatnonzero(place < lengths[whose[known]])
        offsets = np.cumsum(lengths) - lengths
        left[offsets[whose[known[ranked]]] + place[ranked]] -= own[taken[known[ranked]]]
        totals = self._totals[items] - np.bincount(whose, own[taken], minlength=len(items))
        there = np.flatnonzero(left)  # counts are exact (rules.py): what was all own is 0
        of, positions, left = of[there], positions[there], left[there]
        best = find_highest(of, positions, left, M)
        of, positions, left = of[best], positions[best], left[best]
        return of, count_within(of), self._followers[positions], left * scale_rules(totals)[of]

    def _list_own(self, histories: Histories) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], int]:
        """What each asking user adds to each rule, as `add_up` takes it, rules by their keys."""
        users, first, then, counts = gather_pairs(self._counted.find_own(histories), REACH)
        return users, first.astype(np.int64) * self._width + then, counts, self._width**2


def _span(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every position of some stretches, and which stretch it is of."""
    return Histories(np.zeros(0, dtype=np.int32), starts, starts + lengths).find_positions()

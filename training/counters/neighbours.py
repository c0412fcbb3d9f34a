"""Nearest neighbours: of the items that a history holds, and of the history among those of all users."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from training.histories import Histories
from training.rows import find_highest
from training.split import count_items

_CELLS_AT_ONCE = 2**23
_WEIGHED_STEPS = 10
"""A neighbour that shares no newer item than the eleventh last has no weight (VS-kNN's linear decay)."""


class ItemNeighbours:
    """Scores each item by its cosine similarity to the newest items of a history (Sarwar et al., WWW 2001).

    Two items are similar when the same users met them; of each item the `neighbours` most similar ones count.
    Popularity decides among items that are similar to none.
    """

    def __init__(self, train: Histories, item_count: int, *, neighbours: int, window: int) -> None:
        self.item_count = item_count
        self._window = window
        self._similar = _find_similar(_note_meetings(train, item_count), neighbours)[:, 1:]
        self._popular = _share_popularity(train, item_count)

    def score(self, histories: Histories) -> Tensor:
        """Sums of similarities (B, V). An empty history gets popularity alone."""
        asked = _note_meetings(histories.cut_newest(self._window), self.item_count)
        return torch.from_numpy((asked @ self._similar).toarray() + self._popular)


class SessionNeighbours:
    """Scores each item by the sessions most like a history: VMIS-kNN (Kersbergen, Sprangers & Schelter, SIGMOD 2022).

    A session is a training history. Those that share an item with the newest `window` items asked are candidates, the
    `sessions` newest of them where the log has times. A shared item counts its place in what is asked, the newest 1,
    and the `neighbours` sessions with the highest sum remain. Each gives its items this sum, weighed by how new the
    newest shared item is (1, .9, .8 ..) and by 1 + log(U / users of the item). Popularity decides among items of no
    neighbour.
    """

    def __init__(
        self,
        train: Histories,
        item_count: int,
        times_ms: NDArray[np.int64] | None,
        *,
        neighbours: int,
        sessions: int,
        window: int,
    ) -> None:
        self.item_count = item_count
        self._neighbours, self._sessions, self._window = neighbours, sessions, window
        filled = np.flatnonzero(train.lengths)
        self._moments = None if times_ms is None else np.zeros(len(train), dtype=np.int64)
        if times_ms is not None and self._moments is not None:
            self._moments[filled] = times_ms[train.ends[filled] - 1]
        met = _note_meetings(train, item_count)
        self._items_of, self._sessions_of = met, sparse.csr_array(met.T)
        users = np.diff(self._sessions_of.indptr)
        self._rarity = 1 + np.log(max(1, len(filled)) / np.maximum(users, 1))
        self._popular = _share_popularity(train, item_count)

    def score(self, histories: Histories) -> Tensor:
        """Weighed sums over neighbours (B, V). An empty history gets popularity alone."""
        newest = histories.cut_newest(self._window)
        return torch.from_numpy(np.stack([self._score_one(history) for history in newest]) + self._popular)

    def _score_one(self, history: NDArray[np.int32]) -> NDArray[np.float64]:
        items, backwards = np.unique(history[::-1], return_index=True)  # of an item met twice the newer place counts
        order = np.argsort(-backwards)
        items, ages = items[order], backwards[order]  # oldest first, so that newer ones overwrite them below
        found, sharing = _gather_rows(self._sessions_of, items.astype(np.int64))
        if not len(found):
            return np.zeros(self.item_count)
        U = self._items_of.shape[0]
        likeness = _add_up(found, 1 - ages[sharing] / len(history), U)
        age = np.zeros(U, dtype=np.int64)
        age[found] = ages[sharing]
        near = self._choose(np.flatnonzero(likeness), likeness)
        weights = likeness[near] * np.maximum(0, 1 - age[near] / _WEIGHED_STEPS)
        theirs, of = _gather_rows(self._items_of, near)
        shares = weights[of] * self._rarity[theirs]
        return _add_up(theirs, shares, self.item_count + 1)[1:]

    def _choose(self, sessions: NDArray[np.int64], likeness: NDArray[np.float64]) -> NDArray[np.int64]:
        """The newest of the sessions, and of these the ones most alike; equal ones by their order."""
        if self._moments is not None and len(sessions) > self._sessions:
            newest = np.argsort(-self._moments[sessions], kind="stable")[: self._sessions]
            sessions = np.sort(sessions[newest])
        return sessions[np.argsort(-likeness[sessions], kind="stable")[: self._neighbours]]


def _add_up(places: NDArray[np.integer], shares: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """The sum of the shares at each place."""
    return np.bincount(places, weights=shares, minlength=length).astype(np.float64, copy=False)


def _note_meetings(histories: Histories, item_count: int) -> sparse.csr_array:
    """1 where a history (B) holds an item (V + 1, by index), once or often."""
    rows, items = histories.flatten()
    pairs = np.unique(rows * (item_count + 1) + items)
    rows, items = pairs // (item_count + 1), pairs % (item_count + 1)
    return sparse.csr_array((np.ones(len(pairs)), (rows, items)), shape=(len(histories), item_count + 1))


def _find_similar(met: sparse.csr_array, most: int) -> sparse.csr_array:
    """The cosines between columns of a matrix of 0 and 1, of each column those to the `most` nearest others (V, V)."""
    counts = np.bincount(met.indices, minlength=met.shape[1])
    normed = sparse.csr_array((counts[met.indices] ** -0.5, met.indices, met.indptr), shape=met.shape)
    by_item = sparse.csr_array(normed.T)
    step = max(1, _CELLS_AT_ONCE // met.shape[1])
    parts = [
        _keep_highest(sparse.csr_array(by_item[begin : begin + step] @ normed), begin, most)
        for begin in range(0, met.shape[1], step)
    ]
    return sparse.vstack(parts, format="csr")


def _keep_highest(cosines: sparse.csr_array, begin: int, most: int) -> sparse.csr_array:
    """The highest entries of each row but its own, the row `begin` being the first; equal ones by column."""
    cosines = cosines.tocoo()
    rows, columns, values = cosines.row, cosines.col, cosines.data
    others = np.flatnonzero(rows + begin != columns)
    kept = others[find_highest(rows[others], columns[others], values[others], most)]
    return sparse.csr_array((values[kept], (rows[kept], columns[kept])), shape=cosines.shape)


def _gather_rows(matrix: sparse.csr_array, rows: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The columns of some rows, one row after the other, and which of the rows each is of."""
    found = Histories(matrix.indices, matrix.indptr[rows].astype(np.int64), matrix.indptr[rows + 1].astype(np.int64))
    of, columns = found.flatten()
    return columns, of


def _share_popularity(train: Histories, item_count: int) -> NDArray[np.float64]:
    """Less than any likeness, and in the order of popularity (V)."""
    counts = count_items(train, item_count)
    shares: NDArray[np.float64] = counts / (counts.sum() + 1) * 1e-9
    return shares

"""Nearest neighbours: of the items that a history holds, and of the history among those of all users."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from model.contract.sessions import CANDIDATES, NEIGHBOURS, WINDOW, Sessions, share_popularity
from training.baselines.sparse_rows import find_highest
from training.data.histories import Histories
from training.data.split import count_items

_CELLS_AT_ONCE = 2**23


class ItemNeighbours:
    """Scores each item by its cosine similarity to the newest items of a history (Sarwar et al., WWW 2001).

    Two items are similar when the same users met them; of each item the `neighbours` most similar ones count.
    Popularity decides among items that are similar to none.
    """

    def __init__(self, train: Histories, item_count: int, *, neighbours: int, window: int) -> None:
        self.item_count = item_count
        self._window = window
        self._similar = _find_similar(_note_meetings(train, item_count), neighbours)[:, 1:]
        self._popular = share_popularity(count_items(train, item_count))

    def score(self, histories: Histories) -> Tensor:
        """Sums of similarities (B, V). An empty history gets popularity alone."""
        query = _note_meetings(histories.cut_newest(self._window), self.item_count)
        return torch.from_numpy((query @ self._similar).toarray() + self._popular)


class SessionNeighbours:
    """Scores each item by the training histories most like a history, its sessions (model/contract/sessions.py).

    Popularity decides among items of no neighbour.
    """

    def __init__(self, sessions: Sessions, train: Histories) -> None:
        self.item_count = sessions.item_count
        self._sessions = sessions
        self._popular = share_popularity(count_items(train, self.item_count))

    def score(self, histories: Histories) -> Tensor:
        """Weighed sums over neighbours (B, V). An empty history gets popularity alone."""
        return torch.from_numpy(np.stack([self._sessions.score(history) for history in histories]) + self._popular)


def gather_sessions(
    train: Histories,
    item_count: int,
    times_ms: NDArray[np.int64] | None,
    *,
    neighbours: int = NEIGHBOURS,
    candidates: int = CANDIDATES,
    window: int = WINDOW,
) -> Sessions:
    """Each training history as a session that ended at its last event. Without times all are candidates."""
    met = _note_meetings(train, item_count)
    moments = np.zeros(len(train), dtype=np.int64)
    if times_ms is not None:
        filled = np.flatnonzero(train.lengths)
        moments[filled] = times_ms[train.ends[filled] - 1]
    return Sessions(
        item_count=item_count,
        starts=met.indptr.astype(np.int64),
        items=met.indices.astype(np.int32),
        moments=moments,
        neighbours=neighbours,
        candidates=candidates if times_ms is not None else max(1, len(train)),
        window=window,
    )


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

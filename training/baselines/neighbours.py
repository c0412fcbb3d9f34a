"""Nearest neighbours: of the items that a history holds, and of the history among those of all users."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from model.contract.sessions import CANDIDATES, NEIGHBOURS, WINDOW, Sessions
from training.baselines.own_history import Counted
from training.baselines.sparse_rows import add_up, find_highest
from training.data.histories import Histories

_MOST_PAIRS = 2**26
"""So many pairs of items that users met together are kept; of more, those that a batch asks for are counted for it."""


class ItemNeighbours:
    """Scores each item by its cosine similarity to the newest items of a history (Sarwar et al., WWW 2001).

    Two items are similar when the same users met them, the asking one left out unless `leave_own_out` is off; of each
    item the `neighbours` most similar ones count. Popularity decides among items that are similar to none.
    """

    def __init__(
        self, train: Histories, item_count: int, *, neighbours: int, window: int, leave_own_out: bool = True
    ) -> None:
        self.item_count = item_count
        self._neighbours, self._window = neighbours, window
        self._met = _note_meetings(train, item_count)
        self._users = np.bincount(self._met.indices, minlength=item_count + 1)
        self._by_item = sparse.csr_array(self._met.T)
        self._counted = Counted(train, item_count, leave_own_out=leave_own_out)
        most = int(min(item_count**2, (np.diff(self._met.indptr).astype(np.float64) ** 2).sum()))
        self._together = self._by_item @ self._met if most <= _MOST_PAIRS else None

    def score(self, histories: Histories) -> Tensor:
        """Sums of similarities (B, V). An empty history gets popularity alone."""
        own = self._counted.find_own(histories)
        asked = _note_meetings(histories.cut_newest(self._window), self.item_count).tocoo()
        of, columns, cosines = self._find_similar(asked.row, asked.col, _note_meetings(own, self.item_count))
        rows, columns, sums = add_up(asked.row[of], columns - 1, cosines, self.item_count)
        scores = _BELOW_SIMILAR * self._counted.share_others(own)
        scores[rows, columns] += sums
        return torch.from_numpy(scores)

    def list_similar(
        self, items: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """The `neighbours` most similar items of each of some, by everybody's meetings: items, theirs, and cosines."""
        nobody = sparse.csr_array((1, self.item_count + 1), dtype=np.int32)
        of, columns, cosines = self._find_similar(np.zeros_like(items), items, nobody)
        return items[of], columns, cosines

    def _find_similar(
        self, rows: NDArray[np.integer], items: NDArray[np.integer], own: sparse.csr_array
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """The items most similar to each of A items, each asked by a row: which of the A, the items, the cosines.

        `own` (B, V + 1) is what each row's user met in what was counted.
        """
        distinct, which = np.unique(items, return_inverse=True)
        together = (self._by_item[distinct] @ self._met) if self._together is None else self._together[distinct]
        spans = Histories(together.indices, together.indptr[which], together.indptr[which + 1])
        of, positions = spans.find_positions()
        columns = together.indices[positions].astype(np.int64)
        mine = own.toarray().astype(bool)
        met_both = mine[rows, items][of]  # whether the asking user is among those who met the item asked
        met_it = mine[rows[of], columns]
        users = self._users[items[of]] - met_both
        counts = together.data[positions] - (met_both & met_it)
        kept = np.flatnonzero((counts > 0) & (columns != items[of]))
        of, columns, counts, users = of[kept], columns[kept], counts[kept], users[kept]
        cosines = counts / np.sqrt(users * (self._users[columns] - met_it[kept]))
        best = find_highest(of, columns, cosines, self._neighbours)
        return of[best], columns[best], cosines[best]


class SessionNeighbours:
    """Scores each item by the training histories most like a history, its sessions (model/contract/sessions.py).

    The asking user's own is none of them, unless `leave_own_out` is off. Popularity decides among items of no
    neighbour.
    """

    def __init__(self, sessions: Sessions, train: Histories, *, leave_own_out: bool = True) -> None:
        self.item_count = sessions.item_count
        self._sessions, self._train = sessions, train
        self._counted = Counted(train, self.item_count, leave_own_out=leave_own_out)

    def score(self, histories: Histories) -> Tensor:
        """Weighed sums over neighbours (B, V). An empty history gets popularity alone."""
        own = self._counted.find_own(histories)
        owners = np.where(own.lengths > 0, self._train.find_owners(own), -1)
        scores = [
            self._sessions.score(history, without=None if owner < 0 else int(owner))
            for history, owner in zip(histories, owners, strict=True)
        ]
        return torch.from_numpy(np.stack(scores) + _BELOW_SIMILAR * self._counted.share_others(own))


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
    return sparse.csr_array(
        (np.ones(len(pairs), dtype=np.int32), (rows, items)), shape=(len(histories), item_count + 1)
    )


_BELOW_SIMILAR = 1e-9  # less than any likeness, as `share_popularity` has it for the service

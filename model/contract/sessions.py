"""Nearest sessions: what the trainer measures as `session-knn`, and what a service falls back on. One definition.

VMIS-kNN (Kersbergen, Sprangers & Schelter, SIGMOD 2022). Symbols: U sessions, V items, E meetings of the two.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from model.contract.npy import decode_arrays, encode_arrays

NEIGHBOURS, CANDIDATES, WINDOW = 100, 5000, 5
"""Defaults: sessions that vote, sessions that are compared, and newest items of the history that are compared."""

_WEIGHED_STEPS = 10
"""A neighbour that shares no newer item than the eleventh last has no weight (VS-kNN's linear decay)."""


@dataclass(frozen=True, kw_only=True)
class Sessions:
    """Who met what, and how much is asked of it."""

    item_count: int
    starts: NDArray[np.int64]
    """(U + 1): session u met items[starts[u]:starts[u + 1]]."""
    items: NDArray[np.int32]
    """(E) item indexes, a session's in rising order, each once."""
    moments: NDArray[np.int64]
    """(U) when each session ended, in any unit; all equal if the log has no times."""
    neighbours: int = NEIGHBOURS
    candidates: int = CANDIDATES
    window: int = WINDOW

    def score(self, history: NDArray[np.int32], *, without: int | None = None) -> NDArray[np.float64]:
        """Score all items (V) by the sessions most like a history of item indexes, oldest first.

        The session `without` counts as if it were not there.

        Those that share an item with its newest `window` items are candidates, the `candidates` newest of them. A
        shared item counts its place in what is asked, the newest 1, and the `neighbours` sessions with the highest
        sum remain. Each gives its items this sum, weighed by how new the newest shared item is (1, .9, .8 ..) and by
        1 + log(U / sessions of the item).
        """
        history = history[-self.window :]
        items, backwards = np.unique(history[::-1], return_index=True)  # of an item met twice the newer place counts
        order = np.argsort(-backwards)
        items, ages = items[order], backwards[order]  # oldest first, so that newer ones overwrite them below
        found, sharing = _gather(*self._by_item, items)
        if without is not None:
            found, sharing = found[found != without], sharing[found != without]
        if not len(found):
            return np.zeros(self.item_count)
        U = len(self.moments)
        similarity = _add_up(found, 1 - ages[sharing] / len(history), U)
        age = np.zeros(U, dtype=np.int64)
        age[found] = ages[sharing]
        near = self._choose(np.flatnonzero(similarity), similarity)
        weights = similarity[near] * np.maximum(0, 1 - age[near] / _WEIGHED_STEPS)
        theirs, of = _gather(self.starts, self.items, near)
        rarity = self._rarity[theirs] if without is None else self._measure_rarity(theirs, without)
        return _add_up(theirs, weights[of] * rarity, self.item_count + 1)[1:]

    def _choose(self, sessions: NDArray[np.int64], similarity: NDArray[np.float64]) -> NDArray[np.int64]:
        """The newest of the sessions, and of these the ones most alike; equal ones by their order."""
        if len(sessions) > self.candidates:
            newest = np.argsort(-self.moments[sessions], kind="stable")[: self.candidates]
            sessions = np.sort(sessions[newest])
        return sessions[np.argsort(-similarity[sessions], kind="stable")[: self.neighbours]]

    @cached_property
    def _by_item(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The sessions of every item: where each item's begin (V + 2), and the sessions (E), in rising order."""
        sessions = np.repeat(np.arange(len(self.moments)), np.diff(self.starts))
        counts = np.bincount(self.items, minlength=self.item_count + 1)
        return np.concatenate([[0], np.cumsum(counts)]), sessions[np.argsort(self.items, kind="stable")]

    @cached_property
    def _rarity(self) -> NDArray[np.float64]:
        """(V + 1) by item index."""
        rarity: NDArray[np.float64] = 1 + np.log(max(1, self._filled) / np.maximum(np.diff(self._by_item[0]), 1))
        return rarity

    def _measure_rarity(self, items: NDArray[np.integer], without: int) -> NDArray[np.float64]:
        """The same of some items as if one session were not there."""
        met = self.items[self.starts[without] : self.starts[without + 1]]
        bounds = self._by_item[0]
        counts = bounds[items + 1] - bounds[items] - np.isin(items, met)
        rarity: NDArray[np.float64] = 1 + np.log(max(1, self._filled - (len(met) > 0)) / np.maximum(counts, 1))
        return rarity

    @cached_property
    def _filled(self) -> int:
        """How many sessions met anything."""
        return int(np.count_nonzero(np.diff(self.starts)))

    def to_bytes(self) -> bytes:
        """The content of sessions.npy."""
        numbers = np.array([self.neighbours, self.candidates, self.window])
        return encode_arrays(self.starts, self.items, self.moments, numbers)

    @classmethod
    def from_bytes(cls, content: bytes, item_count: int) -> "Sessions":
        """What `to_bytes` wrote, for so many items. Raises ValueError."""
        starts, items, moments, numbers = decode_arrays(content, 4)
        kinds = [(array.ndim, array.dtype.name) for array in (starts, items, moments, numbers)]
        if kinds != [(1, "int64"), (1, "int32"), (1, "int64"), (1, "int64")] or len(numbers) != 3:
            raise ValueError("not starts, items, moments and numbers")
        if len(starts) != len(moments) + 1 or starts[0] != 0 or starts[-1] != len(items) or (np.diff(starts) < 0).any():
            raise ValueError("sessions that do not lie one after the other")
        inner = np.ones(len(items), dtype=bool)
        inner[starts[:-1][np.diff(starts) > 0]] = False
        if len(items) and (items.min() < 1 or items.max() > item_count or (np.diff(items) <= 0)[inner[1:]].any()):
            raise ValueError("sessions of items that are none, or not in rising order")
        if numbers.min() < 1:
            raise ValueError("a number below 1")
        neighbours, candidates, window = numbers.tolist()
        return cls(
            item_count=item_count,
            starts=starts,
            items=items,
            moments=moments,
            neighbours=neighbours,
            candidates=candidates,
            window=window,
        )


def share_popularity(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Less than any likeness, and in the order of popularity (V): what decides among items of no neighbour."""
    shares: NDArray[np.float64] = counts / (counts.sum() + 1) * 1e-9
    return shares


def _gather(
    starts: NDArray[np.int64], values: NDArray[np.integer], rows: NDArray[np.integer]
) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """The values of some rows, one row after the other, and which of the rows each is of."""
    lengths = starts[rows + 1] - starts[rows]
    of = np.repeat(np.arange(len(rows)), lengths)
    positions = np.arange(len(of)) - (np.cumsum(lengths) - lengths)[of] + starts[rows][of]
    return values[positions], of


def _add_up(positions: NDArray[np.integer], shares: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """The sum of the shares at each place."""
    return np.bincount(positions, weights=shares, minlength=length).astype(np.float64, copy=False)

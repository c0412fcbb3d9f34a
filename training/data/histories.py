"""Many histories in two flat arrays, and the windows that a network reads, cut without a loop over users."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.sequence import Input
from model.contract.vocabulary import PAD


@dataclass(frozen=True)
class Histories:
    """B histories as slices `items[starts[b]:ends[b]]` of one flat array of item indexes, oldest first."""

    items: NDArray[np.int32]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    asked_ms: NDArray[np.int64] | None = None
    """When the next item of each history is asked for, in epoch milliseconds (B), where that is known."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.items[self.starts[row] : self.ends[row]]

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Items in each history (B)."""
        return self.ends - self.starts

    def select(self, rows: NDArray[np.int64] | slice) -> "Histories":
        """The histories of some rows, in their order. Nothing is copied but bounds."""
        asked_ms = None if self.asked_ms is None else self.asked_ms[rows]
        return Histories(self.items, self.starts[rows], self.ends[rows], asked_ms)

    def flatten(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Every (row, item) pair that occurs, as two arrays as long as all histories together."""
        rows, positions = self.find_positions()
        return rows, self.items[positions]

    def find_positions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same pairs, with positions in the flat array instead of the items there."""
        lengths = self.lengths
        rows = np.repeat(np.arange(len(self)), lengths)
        before = np.cumsum(lengths) - lengths
        return rows, np.arange(len(rows)) - before[rows] + self.starts[rows]

    def find_owners(self, parts: "Histories") -> NDArray[np.int64]:
        """The row that holds each of `parts`. The rows here must lie in order and begin at different places."""
        owners: NDArray[np.int64] = np.searchsorted(self.starts, parts.starts, side="right") - 1
        return owners

    def find_own(self, asked: "Histories") -> "Histories":
        """What is held here of the user of each asked history (B), nothing where it is nobody's of here.

        Both must be slices of one log's array: of histories that lie elsewhere nothing is held. The rows here lie as
        for `find_owners`.
        """
        if asked.items is not self.items or not len(self):
            return Histories(self.items, np.zeros_like(asked.starts), np.zeros_like(asked.starts))
        own = self.select(np.maximum(self.find_owners(asked), 0))
        inside = (asked.starts >= own.starts) & ((asked.starts < own.ends) | (asked.starts == own.starts))
        return Histories(self.items, own.starts, np.where(inside, own.ends, own.starts))

    def cut_newest(self, most: int) -> "Histories":
        """The newest `most` items of each."""
        return Histories(self.items, np.maximum(self.starts, self.ends - most), self.ends, self.asked_ms)

    def cut_windows(self, max_length: int) -> Input:
        """The newest `max_length` items of each, right-aligned and padded: (B, T), what `align_right` gives."""
        item_ids = self.cut_side_input(self.items, max_length).astype(np.int32, copy=False)
        return Input(item_ids, np.minimum(self.lengths, max_length).astype(np.int32))

    def cut_side_input(self, values: NDArray[Any], max_length: int) -> NDArray[Any]:
        """Cut a side input, flat as `items`, into the same windows (B, T), 0 at padding."""
        lengths = np.minimum(self.lengths, max_length)
        T = max(1, int(lengths.max(initial=0)))
        positions = self.ends[:, None] - T + np.arange(T)
        inside = np.arange(T) >= T - lengths[:, None]
        if not len(values):
            return np.zeros(inside.shape, dtype=values.dtype)
        cut: NDArray[Any] = np.where(inside, values[np.where(inside, positions, 0)], values.dtype.type(PAD))
        return cut

    def query_next(self, *, max_length: int, mask_index: int) -> Input:
        """The query for the next item: [mask] after the newest items, as `encode_histories` makes it."""
        item_ids = self.query_side_input(self.items, max_length=max_length, at_mask=mask_index)
        lengths = np.minimum(self.lengths, max_length - 1) + 1
        return Input(item_ids.astype(np.int32, copy=False), lengths.astype(np.int32))

    def query_side_input(self, values: NDArray[Any], *, max_length: int, at_mask: int = 0) -> NDArray[Any]:
        """A side input, flat as `items`, for that query (B, T): 0 at padding and `at_mask` at [mask]."""
        cut = self.cut_side_input(values, max_length - 1)
        cut = cut if self.lengths.any() else cut[:, :0]
        return np.concatenate([cut, np.full((len(self), 1), at_mask, dtype=cut.dtype)], axis=1)

    def query_times(self, times_ms: NDArray[np.int64], *, max_length: int) -> NDArray[np.int64]:
        """The times of that query (B, T): at [mask] when the next item is asked for, 0 where nobody knows."""
        times = self.query_side_input(times_ms, max_length=max_length)
        if self.asked_ms is not None:
            times[:, -1] = self.asked_ms
        return times

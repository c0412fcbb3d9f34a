"""Columns of the items whose metadata changed since the bundle was made, so that a filter reads all of them at once.

Each change of an item is a row at the end, and the item's earlier rows count no more. What was written stays as it is:
whoever looked at rows, in another thread too, sees what they were, and later asks for those that came since. When most
rows count no more, the others are copied to new columns.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from model.contract.columns import Bounds, Value, read_values

SPARE_ROWS = 4096
"""So many rows, and as many as count, may be there that count no more."""
_FIRST_ROOM = 256


class Seen(NamedTuple):
    """How far somebody has read: rows of the columns of this generation."""

    generation: int = 0
    rows: int = 0


class _Growing:
    """An array that grows at its end."""

    def __init__(self, dtype: DTypeLike, values: NDArray[Any] | None = None) -> None:
        self._room = np.empty(0, dtype) if values is None else values.astype(dtype)
        self._size = len(self._room)

    @property
    def values(self) -> NDArray[Any]:
        """What is in it; what this shows never changes."""
        return self._room[: self._size]

    def extend(self, values: Sequence[float]) -> None:
        """Write values at its end."""
        end = self._size + len(values)
        if end > len(self._room):
            room = np.empty(max(_FIRST_ROOM, 2 * end), self._room.dtype)
            room[: self._size] = self.values
            self._room = room
        self._room[self._size : end] = values
        self._size = end


@dataclass(frozen=True)
class Pairs:
    """A column of some rows: which row has which value. Rows count from 1, as items do in masks, and ascend."""

    numeric: bool
    rows: NDArray[np.int32]
    values: NDArray[Any]
    """Numbers, or codes of strings."""
    others: NDArray[np.int32]
    """Rows with values of the other kind alone, which are those of no condition, but are there."""
    codes: Mapping[str, int]

    def mark_present(self, mask: NDArray[np.bool_]) -> None:
        """Set a mask (R + 2) where a row has a value."""
        mask[self.rows] = True
        mask[self.others] = True

    def mark_values(self, mask: NDArray[np.bool_], values: Collection[Value]) -> None:
        """Set a mask (R + 2) where a row has one of some values."""
        codes = (self.codes.get(value) for value in values if isinstance(value, str))
        wanted = list(values) if self.numeric else [code for code in codes if code is not None]
        mask[self.rows[np.isin(self.values, wanted)]] = True

    def mark_range(self, mask: NDArray[np.bool_], bounds: Bounds) -> None:
        """Set a mask (R + 2) where one of a row's numbers lies within bounds."""
        within = np.ones(len(self.rows), dtype=np.bool_)
        for bound, compare in zip(bounds, (np.greater, np.greater_equal, np.less, np.less_equal), strict=True):
            if bound is not None:
                within &= compare(self.values, bound)
        mask[self.rows[within]] = True

    def estimate_present(self) -> int:
        return 10 * (len(self.rows) + len(self.others))

    def estimate_values(self, values: Collection[Value]) -> int:
        return (20 + 2 * len(values)) * len(self.rows)

    def estimate_range(self) -> int:
        return 20 * len(self.rows)


@dataclass(frozen=True)
class ChangedItems:
    """R rows in the order of their changes, with some of their columns."""

    indexes: NDArray[np.int32]
    """(R) the item of each row; an item may have several, of which the last one counts."""
    columns: Mapping[str, Pairs]

    @property
    def item_count(self) -> int:
        """R."""
        return len(self.indexes)


class _Column:
    """The pairs of all rows, from row 0 on."""

    def __init__(self, *, numeric: bool) -> None:
        self._numeric = numeric
        self._rows, self._others = _Growing(np.int32), _Growing(np.int32)
        self._values = _Growing(np.float64 if numeric else np.int32)
        self._codes: dict[str, int] = {}
        self._new: tuple[list[int], list[float], list[int]] = ([], [], [])
        """Rows, values and others that are yet to be written."""

    def add(self, row: int, values: tuple[Value, ...]) -> None:
        """Take the values of a new row, at least one."""
        rows, own, others = self._new
        before = len(rows)
        for value in values:
            if isinstance(value, float):
                if self._numeric:
                    rows.append(row)
                    own.append(value)
            elif not self._numeric:
                rows.append(row)
                own.append(self._codes.setdefault(value, len(self._codes)))
        if len(rows) == before:
            others.append(row)

    def write(self) -> None:
        """Write what was taken."""
        rows, values, others = self._new
        if rows or others:
            self._rows.extend(rows)
            self._values.extend(values)
            self._others.extend(others)
            self._new = ([], [], [])

    def cut(self, first: int) -> Pairs:
        """The rows from the first on."""
        rows, others = self._rows.values, self._others.values
        start = int(np.searchsorted(rows, first))
        left = others[int(np.searchsorted(others, first)) :]
        shift = 1 - first
        return Pairs(self._numeric, rows[start:] + shift, self._values.values[start:], left + shift, self._codes)

    def compact(self, kept: NDArray[np.bool_], places: NDArray[np.int32]) -> "_Column":
        """The same of the rows that are `kept` (R), at their new places (R)."""
        rows, others, values = self._rows.values, self._others.values, self._values.values
        column = _Column(numeric=self._numeric)
        stays = kept[rows]
        values = values[stays]
        if not self._numeric:
            used, values = np.unique(values, return_inverse=True)
            names = list(self._codes)
            column._codes = {names[code]: place for place, code in enumerate(used.tolist())}
        column._rows = _Growing(np.int32, places[rows[stays]])
        column._values = _Growing(column._values.values.dtype, values)
        column._others = _Growing(np.int32, places[others[kept[others]]])
        return column


class ChangedColumns:
    """The columns of the changed items of one bundle, of the bundle's own names and kinds."""

    def __init__(self, kinds: Mapping[str, bool], *, item_count: int) -> None:
        """`kinds` says of each column whether its values are numbers."""
        self._columns = {name: _Column(numeric=numeric) for name, numeric in kinds.items()}
        self._indexes = _Growing(np.int32)
        self._known = np.zeros(item_count + 2, dtype=np.bool_)
        self._count = 0
        self._generation = 0

    @property
    def end(self) -> Seen:
        """Where the next row will be."""
        return Seen(self._generation, len(self._indexes.values))

    def has(self, index: int) -> bool:
        """Whether there is a row of an item."""
        return bool(self._known[index])

    @property
    def items(self) -> NDArray[np.int32]:
        """The items that have rows, by index."""
        return np.flatnonzero(self._known).astype(np.int32)

    def extend(self, changes: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Add a row for each of some items, by index, with its metadata now."""
        columns = self._columns
        for row, (index, metadata) in enumerate(changes, start=len(self._indexes.values)):
            self._count += not self._known[index]
            self._known[index] = True
            for name, cell in metadata.items():
                column = columns.get(name)
                if column is not None and (values := read_values(cell)):
                    column.add(row, values)
        for column in columns.values():
            column.write()
        self._indexes.extend([index for index, _ in changes])
        if len(self._indexes.values) > 2 * self._count + SPARE_ROWS:
            self._compact()

    def since(self, seen: Seen, names: Iterable[str]) -> ChangedItems:
        """The rows after those that were seen, with some columns; all of them where others took their places."""
        first = seen.rows if seen.generation == self._generation else 0
        return ChangedItems(self._indexes.values[first:], {name: self._columns[name].cut(first) for name in names})

    def _compact(self) -> None:
        indexes = self._indexes.values
        last = np.zeros(len(self._known), dtype=np.int32)
        last[indexes] = np.arange(len(indexes), dtype=np.int32)
        kept = last[indexes] == np.arange(len(indexes))
        places = (np.cumsum(kept) - 1).astype(np.int32)
        self._columns = {name: column.compact(kept, places) for name, column in self._columns.items()}
        self._indexes = _Growing(np.int32, indexes[kept])
        self._generation += 1

"""Columns of items' metadata, by which items can be filtered: who has a value, one of some, or a number within bounds.

A column whose items have at most one number each is Numbers. One of strings, or of lists of strings or of numbers, is
Postings. Masks are (V + 2) by item index, 0 being PAD and V + 1 MASK, and false where they are given. What an
estimate gives is about the most nanoseconds that it takes to mark.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Value = str | float


def read_values(cell: object) -> tuple[Value, ...]:
    """The values of an item's field, each once: of a list those of its parts, and otherwise one or none.

    Numbers are float64, true and false the strings "true" and "false". An empty string, null, an object, a list in a
    list and a number that no float64 holds are none.
    """
    if isinstance(cell, list):
        return tuple(dict.fromkeys(value for part in cell if (value := _read(part)) is not None))
    value = _read(cell)
    return () if value is None else (value,)


def _read(cell: object) -> Value | None:
    match cell:
        case bool():
            return "true" if cell else "false"
        case str():
            return cell or None
        case int() | float():
            try:
                number = float(cell)
            except OverflowError:
                return None
            return number if math.isfinite(number) else None
    return None


class Numbers:
    """A column whose items have at most one number each."""

    numeric = True

    def __init__(self, values: NDArray[np.float64]) -> None:
        """Take the numbers of V items, index 1 first, NaN for none."""
        self.values = values

    def mark_present(self, mask: NDArray[np.bool_]) -> None:
        """Set a mask (V + 2) where an item has a value."""
        np.logical_not(np.isnan(self.values), out=mask[1:-1])

    def estimate_present(self) -> int:
        return 2 * len(self.values)

    def mark_values(self, mask: NDArray[np.bool_], values: Collection[Value]) -> None:
        """Set a mask (V + 2) where an item has one of some values."""
        order, ascending = self._ascending
        wanted = np.array([value for value in values if isinstance(value, float)])
        starts, ends = (np.searchsorted(ascending, wanted, side=side) for side in ("left", "right"))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            mask[order[start:end]] = True

    def estimate_values(self, _values: Collection[Value]) -> int:
        return (10 if "_ascending" in vars(self) else 200) * len(self.values)

    def mark_range(self, mask: NDArray[np.bool_], bounds: "Bounds") -> None:
        """Set a mask (V + 2) where an item's number lies within bounds."""
        inner = mask[1:-1]
        np.greater(self.values, -math.inf, out=inner)  # NaN is not
        for bound, compare in zip(bounds, (np.greater, np.greater_equal, np.less, np.less_equal), strict=True):
            if bound is not None:
                inner &= compare(self.values, bound)

    def estimate_range(self) -> int:
        return 4 * len(self.values)

    @cached_property
    def _ascending(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The items by rising number, and these numbers; NaN stands last. Only who asks for a number needs it."""
        order = np.argsort(self.values)
        return (order + 1).astype(np.int32), self.values[order]


@dataclass(frozen=True)
class Postings:
    """A column whose items have any number of values each: the items of every value."""

    values: tuple[Value, ...]
    """N distinct ones, ascending: all strings, or all numbers."""
    starts: NDArray[np.int64]
    """(N + 1): value n is that of items[starts[n]:starts[n + 1]]."""
    items: NDArray[np.int32]
    """(E) by index, those of one value ascending."""

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""
        return isinstance(self.values[0], float)

    def mark_present(self, mask: NDArray[np.bool_]) -> None:
        """Set a mask (V + 2) where an item has a value."""
        mask[self._present] = True

    def estimate_present(self) -> int:
        return 10 * len(self._present if "_present" in vars(self) else self.items)

    def mark_values(self, mask: NDArray[np.bool_], values: Collection[Value]) -> None:
        """Set a mask (V + 2) where an item has one of some values."""
        for start, end in self._find(values):
            mask[self.items[start:end]] = True

    def estimate_values(self, values: Collection[Value]) -> int:
        return 10 * sum(end - start for start, end in self._find(values))

    def _find(self, values: Collection[Value]) -> list[tuple[int, int]]:
        """Where the items of those values stand that there are."""
        places = [place for value in values if (place := self.places.get(value)) is not None]
        return [(int(self.starts[place]), int(self.starts[place + 1])) for place in places]

    def mark_range(self, mask: NDArray[np.bool_], bounds: "Bounds") -> None:
        """Set a mask (V + 2) where one of an item's numbers lies within bounds."""
        first = max(
            0 if bounds.gt is None else bisect_right(self.values, bounds.gt),
            0 if bounds.gte is None else bisect_left(self.values, bounds.gte),
        )
        end = min(
            len(self.values) if bounds.lt is None else bisect_left(self.values, bounds.lt),
            len(self.values) if bounds.lte is None else bisect_right(self.values, bounds.lte),
        )
        if first < end:
            mask[self.items[self.starts[first] : self.starts[end]]] = True

    def estimate_range(self) -> int:
        return 10 * len(self.items)

    @cached_property
    def _present(self) -> NDArray[np.int32]:
        """The items that have a value, each once. Only who asks for that needs it."""
        return np.unique(self.items)

    @cached_property
    def places(self) -> Mapping[Value, int]:
        """The place of each value among them."""
        return {value: place for place, value in enumerate(self.values)}


Column = Numbers | Postings


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Where a number must lie; None is no bound."""

    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None

    def __iter__(self) -> Iterator[float | None]:
        """The four in this order."""
        return iter((self.gt, self.gte, self.lt, self.lte))

    def hold(self, number: float) -> bool:
        """Whether a number lies there."""
        return (
            (self.gt is None or number > self.gt)
            and (self.gte is None or number >= self.gte)
            and (self.lt is None or number < self.lt)
            and (self.lte is None or number <= self.lte)
        )

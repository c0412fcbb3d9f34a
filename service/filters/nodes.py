"""The parts of a filter. Each tells whether an item's metadata matches, and which items do by the columns of all.

Both ways read values alike (model/contract/columns.py). Parts are immutable; equal ones match the same items.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model.contract.attributes import Attributes
from model.contract.columns import Bounds, Column, Value, read_values

Mask = NDArray[np.bool_]
"""(V + 2) by item index; what it says of PAD and [mask] does not matter."""


class Node(Protocol):
    """A part of a filter."""

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        """Whether an item of this metadata matches."""

    def mark(self, attributes: Attributes) -> Mask:
        """Which items match, as a mask of the caller's own. Every leaf must fit the columns."""

    def leaves(self) -> Iterator["Leaf"]:
        """The leaves in it, from left to right."""


@dataclass(frozen=True, slots=True)
class All:
    """Matches where all parts do."""

    parts: tuple[Node, ...]

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        return all(part.holds(metadata) for part in self.parts)

    def mark(self, attributes: Attributes) -> Mask:
        return reduce(np.ndarray.__iand__, (part.mark(attributes) for part in self.parts))

    def leaves(self) -> Iterator["Leaf"]:
        return (leaf for part in self.parts for leaf in part.leaves())


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Matches where one of the parts does."""

    parts: tuple[Node, ...]

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        return any(part.holds(metadata) for part in self.parts)

    def mark(self, attributes: Attributes) -> Mask:
        return reduce(np.ndarray.__ior__, (part.mark(attributes) for part in self.parts))

    def leaves(self) -> Iterator["Leaf"]:
        return (leaf for part in self.parts for leaf in part.leaves())


@dataclass(frozen=True, slots=True)
class Not:
    """Matches where its part does not."""

    part: Node

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        return not self.part.holds(metadata)

    def mark(self, attributes: Attributes) -> Mask:
        mask = self.part.mark(attributes)
        return np.logical_not(mask, out=mask)

    def leaves(self) -> Iterator["Leaf"]:
        return self.part.leaves()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfField:
    """A condition on one field. `pointer` says where it stands in the filter, for errors."""

    field: str
    pointer: str = dataclasses.field(compare=False)

    def mark(self, attributes: Attributes) -> Mask:
        mask = np.zeros(attributes.item_count + 2, dtype=np.bool_)
        self._mark_in(attributes.columns[self.field], mask)
        return mask

    def _mark_in(self, column: Column, mask: Mask) -> None:
        raise NotImplementedError

    def estimate(self, column: Column) -> int:
        """About the most nanoseconds that it takes to mark the items of its column."""
        raise NotImplementedError

    def leaves(self) -> Iterator["Leaf"]:
        yield self  # type: ignore[misc]  # its subclasses are the leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class In(_OfField):
    """Matches an item one of whose values is among these: all strings, or all numbers."""

    values: frozenset[Value]

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers."""
        return isinstance(next(iter(self.values)), float)

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        return not self.values.isdisjoint(read_values(metadata.get(self.field)))

    def _mark_in(self, column: Column, mask: Mask) -> None:
        column.mark_values(mask, self.values)

    def estimate(self, column: Column) -> int:
        return column.estimate_values(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(_OfField):
    """Matches an item one of whose numbers lies within bounds."""

    bounds: Bounds

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        values = read_values(metadata.get(self.field))
        return any(isinstance(value, float) and self.bounds.hold(value) for value in values)

    def _mark_in(self, column: Column, mask: Mask) -> None:
        column.mark_range(mask, self.bounds)

    def estimate(self, column: Column) -> int:
        return column.estimate_range()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exists(_OfField):
    """Matches an item that has a value, or one that has none."""

    wanted: bool

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        return bool(read_values(metadata.get(self.field))) == self.wanted

    def _mark_in(self, column: Column, mask: Mask) -> None:
        column.mark_present(mask)
        if not self.wanted:
            np.logical_not(mask, out=mask)

    def estimate(self, column: Column) -> int:
        return column.estimate_present()


Leaf = In | Range | Exists

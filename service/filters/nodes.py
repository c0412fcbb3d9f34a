"""The parts of a filter. Each tells which items match by the columns of all, or of those that changed.

Parts are immutable; equal ones match the same items.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model.contract.columns import Bounds, Value

Mask = NDArray[np.bool_]
"""(V + 2) by item index, or by a table's places for items from 1 on; what it says of PAD and [mask] does not matter."""


class Column(Protocol):
    """A field of several items: those of model/contract/columns.py are such."""

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""

    def mark_present(self, mask: Mask, /) -> None:
        """Set a mask where an item has a value."""

    def mark_values(self, mask: Mask, values: Collection[Value], /) -> None:
        """Set a mask where an item has one of some values."""

    def mark_range(self, mask: Mask, bounds: Bounds, /) -> None:
        """Set a mask where one of an item's numbers lies within bounds."""

    def estimate_present(self) -> int:
        """About the most nanoseconds that `mark_present` takes; so the others."""

    def estimate_values(self, values: Collection[Value], /) -> int: ...

    def estimate_range(self) -> int: ...


class Table(Protocol):
    """Items and their columns: all of a bundle's (model/contract/attributes.py), or those that changed."""

    @property
    def item_count(self) -> int:
        """V, or how many it has of them."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """By name."""


class Node(Protocol):
    """A part of a filter."""

    def mark(self, table: Table) -> Mask:
        """Which items match, as a mask of the caller's own. Every leaf must fit the columns."""

    def leaves(self) -> Iterator["Leaf"]:
        """The leaves in it, from left to right."""


@dataclass(frozen=True, slots=True)
class All:
    """Matches where all parts do."""

    parts: tuple[Node, ...]

    def mark(self, table: Table) -> Mask:
        return reduce(np.ndarray.__iand__, (part.mark(table) for part in self.parts))

    def leaves(self) -> Iterator["Leaf"]:
        return (leaf for part in self.parts for leaf in part.leaves())


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Matches where one of the parts does."""

    parts: tuple[Node, ...]

    def mark(self, table: Table) -> Mask:
        return reduce(np.ndarray.__ior__, (part.mark(table) for part in self.parts))

    def leaves(self) -> Iterator["Leaf"]:
        return (leaf for part in self.parts for leaf in part.leaves())


@dataclass(frozen=True, slots=True)
class Not:
    """Matches where its part does not."""

    part: Node

    def mark(self, table: Table) -> Mask:
        mask = self.part.mark(table)
        return np.logical_not(mask, out=mask)

    def leaves(self) -> Iterator["Leaf"]:
        return self.part.leaves()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfField(ABC):
    """A condition on one field. `pointer` says where it stands in the filter, for errors."""

    field: str
    pointer: str = dataclasses.field(compare=False)

    def mark(self, table: Table) -> Mask:
        mask = np.zeros(table.item_count + 2, dtype=np.bool_)
        self._mark_in(table.columns[self.field], mask)
        return mask

    @abstractmethod
    def _mark_in(self, column: Column, mask: Mask) -> None: ...

    @abstractmethod
    def estimate(self, column: Column) -> int:
        """About the most nanoseconds that it takes to mark the items of its column."""

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

    def _mark_in(self, column: Column, mask: Mask) -> None:
        column.mark_values(mask, self.values)

    def estimate(self, column: Column) -> int:
        return column.estimate_values(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(_OfField):
    """Matches an item one of whose numbers lies within bounds."""

    bounds: Bounds

    def _mark_in(self, column: Column, mask: Mask) -> None:
        column.mark_range(mask, self.bounds)

    def estimate(self, column: Column) -> int:
        return column.estimate_range()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exists(_OfField):
    """Matches an item that has a value, or one that has none."""

    wanted: bool

    def _mark_in(self, column: Column, mask: Mask) -> None:
        column.mark_present(mask)
        if not self.wanted:
            np.logical_not(mask, out=mask)

    def estimate(self, column: Column) -> int:
        return column.estimate_present()


Leaf = In | Range | Exists

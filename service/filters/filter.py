"""A filter of a request: which items it allows, by the columns of a model's bundle and of what changed since."""

from collections.abc import Iterator
from dataclasses import dataclass

from model.contract.allowed import Allowed
from model.contract.attributes import Attributes
from service.errors import FieldError, Invalid
from service.filters.changed_columns import ChangedItems
from service.filters.nodes import Exists, In, Leaf, Node, Range, Table

LISTED = 200
"""Characters of column names that an error lists, and then no further name."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as parser.py reads it. Hashable; equal filters allow the same items."""

    root: Node

    @property
    def fields(self) -> frozenset[str]:
        """The fields that it has conditions on."""
        return frozenset(leaf.field for leaf in self.root.leaves())

    def check(self, attributes: Attributes) -> None:
        """Raise Invalid, with pointers from /filter on, if a field or the type of a condition is not that of a column.

        What passed is for `allow`.
        """
        wrong = [error for leaf in self.root.leaves() if (error := _check(leaf, attributes)) is not None]
        if wrong:
            raise Invalid(wrong)

    def estimate_work(self, table: Table) -> int:
        """About how many nanoseconds `allow` or `allow_anew` take at most, for a filter that passed `check`."""
        return sum(table.item_count + leaf.estimate(table.columns[leaf.field]) for leaf in self.root.leaves())

    def allow(self, attributes: Attributes) -> Allowed:
        """The items of a bundle that it allows."""
        return Allowed(self.root.mark(attributes))

    def allow_anew(self, before: Allowed, changed: ChangedItems) -> Allowed:
        """What it allows after changes, given what it allowed before. The columns of its `fields` must be there."""
        mask = before.mask.copy()
        mask[changed.indexes] = self.root.mark(changed)[1:-1]  # of several changes of an item the last one stays
        return Allowed(mask)


def _check(leaf: Leaf, attributes: Attributes) -> FieldError | None:
    column = attributes.columns.get(leaf.field)
    if column is None:
        return FieldError(f"/filter{leaf.pointer}/field", "unknown_field", _name_columns(attributes))
    match leaf:
        case In() if leaf.numeric != column.numeric:
            kind = "numbers" if column.numeric else "strings"
            return FieldError(f"/filter{leaf.pointer}/in", "wrong_type", f"must hold {kind}, as this field does")
        case Range() if not column.numeric:
            return FieldError(f"/filter{leaf.pointer}", "wrong_type", "bounds are for fields of numbers")
        case In() | Range() | Exists():
            return None


def _name_columns(attributes: Attributes) -> str:
    """What an error says of the columns that there are."""
    if not attributes.columns:
        return "the model's bundle has no fields to filter by: publish it with --items to have them"
    listed = list(_list_names(attributes))
    rest = len(attributes.columns) - len(listed)
    more = f" and {rest} more" if rest else ""
    return f"must be a field to filter by, which are: {', '.join(listed)}{more}"


def _list_names(attributes: Attributes) -> Iterator[str]:
    """The first names, LISTED characters of them, and always one."""
    characters = 0
    for name in attributes.columns:
        characters += len(name)
        if characters > LISTED and characters > len(name):
            return
        yield name

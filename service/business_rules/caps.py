"""Caps: at most so many items of each value of a metadata field, greedily down a list."""

from collections import Counter
from collections.abc import Callable, Hashable

import orjson


class Cap:
    """Counts the values of the items that it lets into a list. `read` gives the values of an item by index.

    An item with several values, such as genres, counts for each, and is refused if any is full; one without any is let
    in. Asking takes a microsecond or two, most of it for the metadata, of which only that of items asked about is read.
    """

    def __init__(self, count: int, read: Callable[[int], frozenset[Hashable]]) -> None:
        self._count = count
        self._read = read
        self._taken: Counter[Hashable] = Counter()

    def admit(self, item: int) -> bool:
        """Whether there is room for an item, which is then counted."""
        values = self._read(item)
        if any(self._taken[value] >= self._count for value in values):
            return False
        self._taken.update(values)
        return True


def read_values(metadata: bytes, field: str) -> frozenset[Hashable]:
    """What a field of an item's metadata (a JSON object) says: a string, number or truth value, or each of an array.

    Null, objects and arrays in arrays are no values. A truth value is not the number that Python holds it equal to.
    """
    found = orjson.loads(metadata).get(field)
    values = found if isinstance(found, list) else [found]
    return frozenset((isinstance(value, bool), value) for value in values if isinstance(value, str | int | float))

"""Caps: at most so many items of each value of a metadata field, greedily down a list."""

from collections.abc import Callable, Collection

import orjson

from model.contract.columns import Value, read_values


class Cap:
    """Counts the values of the items that it lets into a list. `read` gives the values of an item by index, each once.

    An item with several values, such as genres, counts for each, and is refused if any is full; one without any is let
    in. Asking takes a microsecond or two, most of it for the metadata, of which only that of items asked about is read.
    """

    def __init__(self, count: int, read: Callable[[int], Collection[Value]]) -> None:
        self._count = count
        self._read = read
        self._taken: dict[Value, int] = {}

    def admit(self, item: int) -> bool:
        """Whether there is room for an item, which is then counted."""
        values, taken = self._read(item), self._taken
        for value in values:
            if taken.get(value, 0) >= self._count:
                return False
        for value in values:
            taken[value] = taken.get(value, 0) + 1
        return True


def read_field(metadata: bytes, field: str) -> Collection[Value]:
    """What a field of an item's metadata (a JSON object) says, as filters read it (model/contract/columns.py)."""
    return read_values(orjson.loads(metadata).get(field))

"""What the items of a bundle can be filtered by: the columns of their metadata (columns.py).

attributes.npy holds four arrays, one after the other:

```
header   uint8    JSON: `columns`, in their order, each with its `name` and, of Postings, its `values`, ascending; and
                  `left_out`, columns that cannot be filtered by, with the reason
numbers  float64  (F, V) the columns of Numbers, NaN where an item has none
lengths  int64    of Postings, one column after the other, how many items have each value
items    int32    these items by index, ascending for each value
```
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.columns import Column, Numbers, Postings, Value, read_values
from model.contract.npy import decode_arrays, encode_arrays
from model.contract.vocabulary import Vocabulary

MAX_COLUMNS = 64
MAX_NAME = 100
"""Characters of a column's name."""
MAX_VALUES = 100_000
"""Distinct values of a column of Postings."""
MAX_CHARACTERS = 256
"""Characters of a string among them."""


@dataclass(frozen=True)
class Attributes:
    """The columns of V items by which they can be filtered."""

    item_count: int
    columns: Mapping[str, Column]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why items cannot be filtered by the other ones, the first MAX_COLUMNS of them."""

    def to_bytes(self) -> bytes:
        """The content of attributes.npy."""
        dense = [column.values for column in self.columns.values() if isinstance(column, Numbers)]
        listed = [column for column in self.columns.values() if isinstance(column, Postings)]
        described = [
            {"name": name} if isinstance(column, Numbers) else {"name": name, "values": column.values}
            for name, column in self.columns.items()
        ]
        header = json.dumps({"columns": described, "left_out": self.left_out}, allow_nan=False)
        return encode_arrays(
            np.frombuffer(header.encode(), dtype=np.uint8),
            np.array(dense, dtype=np.float64).reshape(len(dense), self.item_count),
            np.concatenate([np.zeros(0, dtype=np.int64), *(np.diff(column.starts) for column in listed)]),
            np.concatenate([np.zeros(0, dtype=np.int32), *(column.items for column in listed)]),
        )

    @classmethod
    def from_bytes(cls, content: bytes, item_count: int) -> "Attributes":
        """What `to_bytes` wrote, for so many items. Raises ValueError."""
        header, numbers, lengths, items = decode_arrays(content, 4)
        kinds = [(array.ndim, array.dtype.name) for array in (header, numbers, lengths, items)]
        if kinds != [(1, "uint8"), (2, "float64"), (1, "int64"), (1, "int32")]:
            raise ValueError("not header, numbers, lengths and items")
        described, left_out = _read_header(header.tobytes())
        dense = sum(values is None for values in described.values())
        if numbers.shape != (dense, item_count) or np.isinf(numbers).any():
            raise ValueError("numbers that are none, or of other columns or items")
        if len(lengths) != sum(len(values or ()) for values in described.values()):
            raise ValueError("lengths of other values")
        if (lengths < 1).any() or lengths.sum() != len(items):
            raise ValueError("values that do not lie one after the other")
        if len(items) and not _ascend(items, lengths, item_count):
            raise ValueError("items that are none, or not in ascending order")
        return cls(item_count, dict(_cut(described, numbers, lengths, items)), left_out)


def _read_header(content: bytes) -> tuple[dict[str, tuple[Value, ...] | None], dict[str, str]]:
    """The values of each column by its name, None for Numbers; and what is left out. Raises ValueError."""
    try:
        document: Any = json.loads(content)
        columns, left_out = document["columns"], dict(document["left_out"])
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError("a header of another form") from error
    if not isinstance(columns, list) or max(len(columns), len(left_out)) > MAX_COLUMNS:
        raise ValueError(f"a header that is no list of at most {MAX_COLUMNS} columns")
    if not all(isinstance(text, str) for entry in left_out.items() for text in entry):
        raise ValueError("reasons that are none")
    described: dict[str, tuple[Value, ...] | None] = {}
    for entry in columns:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not is_column_name(name) or name in described:
            raise ValueError("a column without a name of its own")
        described[name] = _check_values(entry["values"]) if "values" in entry else None
    return described, left_out


def _check_values(values: object) -> tuple[Value, ...]:
    if not isinstance(values, list) or not 1 <= len(values) <= MAX_VALUES:
        raise ValueError(f"a column that has not 1 to {MAX_VALUES} values")
    texts = all(isinstance(value, str) and 1 <= len(value) <= MAX_CHARACTERS for value in values)
    if not texts and not all(isinstance(value, float) and math.isfinite(value) for value in values):
        raise ValueError("values that are neither strings nor numbers")
    if any(value >= next_value for value, next_value in pairwise(values)):
        raise ValueError("values that are not in ascending order")
    return tuple(values)


def _ascend(items: NDArray[np.int32], lengths: NDArray[np.int64], item_count: int) -> bool:
    """Whether all are items, and those of each value ascend."""
    within = np.ones(len(items), dtype=bool)
    within[np.cumsum(lengths) - lengths] = False
    return bool(items.min() >= 1 and items.max() <= item_count and (np.diff(items) > 0)[within[1:]].all())


def _cut(
    described: Mapping[str, tuple[Value, ...] | None],
    numbers: NDArray[np.float64],
    lengths: NDArray[np.int64],
    items: NDArray[np.int32],
) -> Iterator[tuple[str, Column]]:
    """Each column by its name, cut out of the arrays of all."""
    rows, at, begin = iter(numbers), 0, 0
    for name, values in described.items():
        if values is None:
            yield name, Numbers(next(rows))
            continue
        starts = np.concatenate([[0], np.cumsum(lengths[at : at + len(values)])])
        column = Postings(values, starts, items[begin : begin + int(starts[-1])])
        at, begin = at + len(values), begin + len(column.items)
        len(column.places)  # built now, not while somebody waits for an answer
        yield name, column


def is_column_name(name: str) -> bool:
    """Tell whether a column of this name can be filtered by."""
    return 1 <= len(name) <= MAX_NAME


def gather_attributes(vocabulary: Vocabulary, metadata: Mapping[str, Mapping[str, object]]) -> Attributes:
    """The columns of items' metadata by item id; of those that cannot be filtered by, the reason."""
    cells: dict[str, dict[int, tuple[Value, ...]]] = {}
    for index, item_id in enumerate(vocabulary.item_ids, start=1):
        for name, cell in metadata.get(item_id, {}).items():
            if values := read_values(cell):
                cells.setdefault(name, {})[index] = values
    columns: dict[str, Column] = {}
    left_out: dict[str, str] = {}
    for name in sorted(cells):
        made = _make_column(name, cells.pop(name), len(vocabulary))
        if isinstance(made, str):
            left_out[name[:MAX_NAME]] = made
        elif len(columns) < MAX_COLUMNS:
            columns[name] = made
        else:
            left_out[name] = f"there are {MAX_COLUMNS} others"
    return Attributes(len(vocabulary), columns, dict(list(left_out.items())[:MAX_COLUMNS]))


def _make_column(name: str, cells: Mapping[int, tuple[Value, ...]], item_count: int) -> Column | str:
    """A column of each item's values, or why there is none."""
    if not is_column_name(name):
        return f"its name has more than {MAX_NAME} characters" if name else "it has no name"
    distinct = {value for values in cells.values() for value in values}
    if len({type(value) for value in distinct}) > 1:
        return "it mixes numbers and strings"
    if all(len(values) == 1 and isinstance(values[0], float) for values in cells.values()):
        numbers = np.full(item_count, np.nan)
        numbers[np.array(list(cells)) - 1] = [value for (value,) in cells.values()]
        return Numbers(numbers)
    if len(distinct) > MAX_VALUES:
        return f"it has more than {MAX_VALUES:,} distinct values"
    if any(isinstance(value, str) and len(value) > MAX_CHARACTERS for value in distinct):
        return f"a value of it has more than {MAX_CHARACTERS} characters"
    items: dict[Value, list[int]] = {value: [] for value in sorted(distinct)}
    for index, values in cells.items():
        for value in values:
            items[value].append(index)
    starts = np.cumsum([0, *map(len, items.values())], dtype=np.int64)
    return Postings(tuple(items), starts, np.fromiter((i for of in items.values() for i in of), np.int32, starts[-1]))

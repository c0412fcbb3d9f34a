"""Items' side information as codes: which values a column has, learned from the items of a log, and every item's own.

A column of categories gives each distinct value a code; a cell that is a list has several. A column of numbers is cut
into buckets that hold equally many items; with no more distinct numbers than buckets, each has its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.vocabulary import Vocabulary
from training.errors import DataError, RecipeError
from training.recipe_models import ModelRecipe, NovaRecipe

Metadata = Mapping[str, Mapping[str, object]]
TITLES = ("title", "name")
"""The columns that hold what people call an item, the first that is filled."""


@dataclass(frozen=True)
class Categories:
    """A column of texts or lists of texts; code 1 + i is `values[i]`."""

    name: str
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(self.values)

    def encode(self, cells: Sequence[object]) -> list[list[int]]:
        """The codes of each cell. A value that no item of the log has gives none."""
        code_of = {value: code for code, value in enumerate(self.values, start=1)}
        return [[code_of[value] for value in _split(cell) if value in code_of] for cell in cells]


@dataclass(frozen=True)
class Numbers:
    """A column of numbers; code 1 is below `edges[0]`, code 1 + i from `edges[i - 1]` on."""

    name: str
    edges: tuple[float, ...]

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(self.edges) + 1

    def encode(self, cells: Sequence[object]) -> list[list[int]]:
        """The code of each cell; an empty cell has none."""
        return [
            [int(np.searchsorted(self.edges, cell, side="right")) + 1] if isinstance(cell, int | float) else []
            for cell in cells
        ]


Column = Categories | Numbers


def find_title(entry: Mapping[str, object]) -> str | None:
    """What people call an item, if its metadata says so."""
    return next((str(entry[key]) for key in TITLES if entry.get(key)), None)


def learn_columns(recipe: ModelRecipe, metadata: Metadata | None, vocabulary: Vocabulary) -> tuple[Column, ...]:
    """The columns that a recipe names, with the values of the log's items. Raises RecipeError and DataError."""
    if not isinstance(recipe, NovaRecipe) or not (recipe.categories or recipe.numbers):
        return ()
    if metadata is None:
        raise RecipeError(
            "model.categories and model.numbers name columns of the items file: give that file with --items FILE"
        )
    known = [metadata.get(item_id, {}) for item_id in vocabulary.item_ids]
    columns: list[Column] = []
    for name in (*recipe.categories, *recipe.numbers):
        cells = [entry[name] for entry in known if name in entry]
        if not cells:
            found = ", ".join(sorted({key for entry in known for key in entry})) or "nothing"
            raise DataError(f"the items file has no {name!r} for any item of the log, only {found}")
        if name in recipe.categories:
            columns.append(Categories(name, tuple(sorted({value for cell in cells for value in _split(cell)}))))
        else:
            columns.append(Numbers(name, find_edges(_read_numbers(name, cells), recipe.buckets)))
    return tuple(columns)


def encode_items(columns: Sequence[Column], metadata: Metadata, vocabulary: Vocabulary) -> list[NDArray[np.int32]]:
    """The codes of each column (V + 2, W) by item index, W being the most values of an item; 0 is padding."""
    tables = []
    for column in columns:
        codes = column.encode([metadata.get(item_id, {}).get(column.name) for item_id in vocabulary.item_ids])
        table = np.zeros((vocabulary.table_size, max(1, *map(len, codes))), dtype=np.int32)
        for index, row in enumerate(codes, start=1):
            table[index, : len(row)] = row
        tables.append(table)
    return tables


def find_edges(numbers: NDArray[np.float64], buckets: int) -> tuple[float, ...]:
    """The lower edge of each bucket but the first: quantiles, or all midpoints where there are few distinct numbers."""
    distinct = np.unique(numbers)
    if len(distinct) <= buckets:
        edges = (distinct[:-1] + distinct[1:]) / 2
    else:
        edges = np.unique(np.quantile(numbers, np.arange(1, buckets) / buckets))
    return tuple(edges.tolist())


def columns_to_json(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The content of features.json."""
    return [asdict(column) for column in columns]


def columns_from_json(document: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """What `columns_to_json` gave. Raises KeyError, TypeError or ValueError."""
    return tuple(
        Categories(str(entry["name"]), tuple(map(str, entry["values"])))
        if "values" in entry
        else Numbers(str(entry["name"]), tuple(map(float, entry["edges"])))
        for entry in document
    )


def _split(cell: object) -> list[str]:
    values = cell if isinstance(cell, list) else [] if cell is None else [cell]
    return list(dict.fromkeys(map(str, values)))


def _read_numbers(name: str, cells: Sequence[object]) -> NDArray[np.float64]:
    for cell in cells:
        if not isinstance(cell, int | float):
            raise DataError(f"the items file's column {name!r} does not hold numbers: put it into model.categories")
    return np.array(cells, dtype=np.float64)

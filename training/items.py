"""What is known of items: a CSV or TSV file with an `item` column, every other column metadata.

A column whose filled cells are all numbers gives numbers. A column named genres, or with a `|` in some cell, gives
lists. Empty cells give nothing.
"""

import re
from pathlib import Path

import polars as pl

from training.errors import DataError
from training.tables import Places, read_table

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?")


def read_items(path: Path) -> dict[str, dict[str, object]]:
    """Read an items file: metadata by item id. Raises DataError."""
    if not path.is_file():
        raise DataError(f"{path} is no file")
    kind = "tsv" if ".tsv" in path.suffixes else "csv"
    table = read_table(path, kind)
    if "item" not in table.columns:
        raise DataError(f"{path} has no column 'item', only {', '.join(table.columns)}")
    places = Places(path, kind)
    rows = table.with_row_index("row").filter(~pl.all_horizontal(pl.exclude("row").is_null()))
    places.refuse(rows, rows["item"].is_null(), "no item")
    places.refuse(rows, ~rows["item"].is_first_distinct(), "this item was described before")
    metadata: dict[str, dict[str, object]] = {item_id: {} for item_id in rows["item"]}
    for name in table.columns:
        if name != "item":
            cells = [cell.strip() if cell else "" for cell in rows[name]]
            for entry, value in zip(metadata.values(), _read_column(name, cells), strict=True):
                if value is not None:
                    entry[name] = value
    return metadata


def _read_column(name: str, cells: list[str]) -> list[object]:
    if name == "genres" or any("|" in cell for cell in cells):
        lists = [[part for part in cell.split("|") if part] for cell in cells]
        return [parts or None for parts in lists]
    if all(_NUMBER.fullmatch(cell) for cell in cells if cell):
        whole = not any("." in cell for cell in cells)
        return [(int(cell) if whole else float(cell)) if cell else None for cell in cells]
    return [cell or None for cell in cells]

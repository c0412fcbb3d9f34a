"""What is known of items: a CSV or TSV file with a column of items, every other column metadata.

A column whose filled cells are all numbers gives numbers. A column named genres, or with a `|` in some cell, gives
lists. Empty cells give nothing.

Or a JSON object by item, also as .gz: of objects, which are the metadata, or of lists, as S3-Rec's files of attributes
have them, which become the column `attributes`.
"""

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import NoReturn

from model.contract.event_logs.columns import ITEM, find_columns
from model.contract.event_logs.errors import LogError
from model.contract.event_logs.ids import encode_id
from training.errors import DataError
from training.logs.tables import RowLocator, find_table, read_table

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?")


def read_items(path: Path, ids: str = "plain") -> dict[str, dict[str, object]]:
    """Read an items file: metadata by item id. With `ids` = percent ids are encoded as a log's. Raises DataError."""
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    metadata = _read_object(path) if ".json" in path.suffixes else _read_columns(path)
    return {encode_id(item_id): entry for item_id, entry in metadata.items()} if ids == "percent" else metadata


def _read_columns(path: Path) -> dict[str, dict[str, object]]:
    form = find_table(path, "tsv" if ".tsv" in path.suffixes else "csv")
    try:
        item = find_columns(path, form.names, {}, [ITEM])[ITEM]
    except LogError as error:
        raise DataError(f"{path} has no column 'item', only {', '.join(form.names)}") from error
    names = {str(place): name for place, name in enumerate(dict.fromkeys(form.names))}
    rows = read_table(path, form, names)
    item_ids = rows[next(own for own, name in names.items() if name == item)]
    locator = RowLocator(path, form.kind)
    locator.refuse(rows, item_ids.is_null(), "no item")
    locator.refuse(rows, ~item_ids.is_first_distinct(), "an earlier line describes the same item")
    metadata: dict[str, dict[str, object]] = {item_id: {} for item_id in item_ids}
    for own, name in names.items():
        if name != item:
            cells = [cell.strip() if cell else "" for cell in rows[own]]
            for entry, value in zip(metadata.values(), _read_column(name, cells), strict=True):
                if value is not None:
                    entry[name] = value
    return metadata


def _read_object(path: Path) -> dict[str, dict[str, object]]:
    try:
        content = path.read_bytes()
        document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content, parse_constant=_refuse)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON") from error
    if not isinstance(document, dict):
        raise DataError(f"{path} is not a JSON object keyed by item")
    metadata = {}
    for item_id, known in document.items():
        entry = {"attributes": known} if isinstance(known, list) else known
        if not isinstance(entry, dict) or not all(map(_is_cell, entry.values())):
            raise DataError(f"{path}: item {item_id!r:.80} must be a list of strings or numbers, or an object of them")
        metadata[item_id] = {name: value for name, value in entry.items() if value not in (None, "", [])}
    return metadata


def _is_cell(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(part, str | int | float) for part in value)
    return value is None or isinstance(value, str | int | float)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _read_column(name: str, cells: list[str]) -> list[object]:
    if name == "genres" or any("|" in cell for cell in cells):
        lists = [[part for part in cell.split("|") if part] for cell in cells]
        return [parts or None for parts in lists]
    if all(_NUMBER.fullmatch(cell) for cell in cells if cell):
        whole = not any("." in cell for cell in cells)
        return [(int(cell) if whole else float(cell)) if cell else None for cell in cells]
    return [cell or None for cell in cells]

"""Reads the archive of the service: a folder of segments (model/contract/event_archive.py)."""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from model.contract.event_archive import (
    COLUMNS,
    EVENT_KEY,
    LOCK,
    PATTERN,
    REQUIRED,
    group_merged,
    parse_segment,
    read_lines,
)
from training.errors import DataError

SEGMENTS = "segments"
"""What the reader calls this format."""

SEGMENT_COLUMNS: Mapping[str, Any] = {
    "user_column": "user_id",
    "item_column": "item_id",
    "timestamp_column": "timestamp",
    "type_column": "type",
    "value_column": "value",
    "time_unit": "ms",
    "ids": "plain",
    "missing_ids": "refuse",
}
"""What an archive is like in the words of a recipe's [data], whose own are for files."""

LISTINGS = 5
"""How often the folder is read anew when segments vanish meanwhile."""

_TYPES: Mapping[type, Any] = {str: pl.String, int: pl.Int64, float: pl.Float64}
_SCHEMA = {name: _TYPES[kind] for name, kind in COLUMNS.items()}


def read_segments(folder: Path) -> pl.DataFrame:
    """All events in the order in which they were accepted, each user's event id once. Raises DataError."""
    for _ in range(LISTINGS):
        with contextlib.suppress(FileNotFoundError):  # the archiver merged what was just listed
            rows = pl.concat([_read(segment) for segment in _list(folder)])
            return rows.unique(list(EVENT_KEY), keep="first", maintain_order=True)
    raise DataError(f"{folder} keeps changing: stop the archiver, or train from a copy")


def is_new_archive(path: Path) -> bool:
    """Whether this is the folder of an archiver that has archived nothing yet."""
    return (path / LOCK).is_file() and not any(path.glob(PATTERN))


def _list(folder: Path) -> list[Path]:
    """The segments to read, by partition and ids, without those that were merged into another."""
    segments = []
    for path in sorted(folder.glob(PATTERN)):
        segment = parse_segment(path)
        if segment is None:
            raise DataError(f"{path} is not a segment: nextitem-serve names segments PARTITION-FIRST-LAST.jsonl.gz")
        segments.append(segment)
    if not segments:
        raise DataError(f"{folder} holds no segments ({PATTERN}): give the folder that nextitem-serve archives to")
    return [segment.path for segment in group_merged(segments)]


def _read(segment: Path) -> pl.DataFrame:
    """The events of a segment. Raises DataError, and FileNotFoundError when it is there no longer."""
    try:
        lines = read_lines(segment)
        rows = pl.read_ndjson(io.BytesIO(lines), schema=_SCHEMA) if lines else pl.DataFrame(schema=_SCHEMA)
    except FileNotFoundError:
        raise
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{segment} is damaged: take it from a backup, or leave it out") from error
    incomplete = rows.select(pl.any_horizontal(pl.col(REQUIRED).is_null()))
    if incomplete.to_series().any():
        line = int(incomplete.to_series().arg_true()[0]) + 1
        raise DataError(f"{segment}, line {line}: an event has user_id, event_id, item_id and timestamp")
    return rows

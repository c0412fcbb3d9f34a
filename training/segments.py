"""Reads the archive of the service: a folder of segments, JSON lines with the names of POST /events."""

import gzip
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from training.errors import DataError

SEGMENTS = "segments"
"""What the reader calls this format."""

SEGMENT_COLUMNS: Mapping[str, Any] = {
    "user_column": "user_id",
    "item_column": "item_id",
    "timestamp_column": "timestamp",
    "type_column": "type",
    "value_column": "value",
}
"""The columns in the words of a recipe's [data], whose own are for files."""

PATTERN = "*.jsonl.gz"

_COLUMNS = {
    "user_id": pl.String,
    "event_id": pl.String,
    "item_id": pl.String,
    "timestamp": pl.Int64,
    "type": pl.String,
    "value": pl.Float64,
}


def read_segments(folder: Path) -> pl.DataFrame:
    """All events in the order in which they were accepted, each user's event id once. Raises DataError."""
    segments = sorted(folder.glob(PATTERN), key=_order)
    if not segments:
        raise DataError(f"{folder} holds no segments ({PATTERN}): name the folder that nextitem-serve archives to")
    rows = pl.concat([_read(segment) for segment in segments])
    return rows.unique(["user_id", "event_id"], keep="first", maintain_order=True)


def _order(segment: Path) -> list[int]:
    """Partition, then ids as numbers."""
    try:
        return [int(part) for part in segment.name.partition(".")[0].split("-")]
    except ValueError as error:
        raise DataError(f"{segment} is no segment: nextitem-serve names them PARTITION-FIRST-LAST.jsonl.gz") from error


def _read(segment: Path) -> pl.DataFrame:
    try:
        content = gzip.decompress(segment.read_bytes())
        rows = pl.read_ndjson(io.BytesIO(content), schema=_COLUMNS) if content else pl.DataFrame(schema=_COLUMNS)
    except (OSError, EOFError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{segment} is damaged: take it from a backup, or leave it out") from error
    incomplete = rows.select(pl.any_horizontal(pl.col("user_id", "event_id", "item_id", "timestamp").is_null()))
    if incomplete.to_series().any():
        line = int(incomplete.to_series().arg_true()[0]) + 1
        raise DataError(f"{segment}, line {line}: an event has user_id, event_id, item_id and timestamp")
    return rows

"""Reads the archive of the service: a folder of segments, JSON lines with the names of POST /events."""

import contextlib
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

LISTINGS = 5
"""How often the folder is read anew when segments vanish meanwhile."""

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
    for _ in range(LISTINGS):
        with contextlib.suppress(FileNotFoundError):  # the archiver merged what was just listed
            rows = pl.concat([_read(segment) for segment in _list(folder)])
            return rows.unique(["user_id", "event_id"], keep="first", maintain_order=True)
    raise DataError(f"{folder} keeps changing: stop the archiver, or train from a copy")


def _list(folder: Path) -> list[Path]:
    """By partition and ids. Without those whose ids another one has as well: it was merged of them, and may hold less.

    Erased users may still be in what the archiver has not deleted yet.
    """
    named = sorted((_parse(segment), segment) for segment in folder.glob(PATTERN))
    if not named:
        raise DataError(f"{folder} holds no segments ({PATTERN}): give the folder that nextitem-serve archives to")
    segments: list[Path] = []
    end: tuple[int, ...] = ()
    for (partition, _, (after_milliseconds, after_sequence)), segment in named:
        last = (partition, -after_milliseconds, -after_sequence)
        if last > end:
            segments.append(segment)
            end = last
    return segments


def _parse(segment: Path) -> tuple[int, tuple[int, int], tuple[int, int]]:
    """Partition, first id, and last id with its signs changed: sorted, a segment comes before those that it holds."""
    try:
        partition, *first, milliseconds, sequence = (int(part) for part in segment.name.partition(".")[0].split("-"))
        return partition, (first[0], first[1]), (-milliseconds, -sequence)
    except (ValueError, IndexError) as error:
        raise DataError(
            f"{segment} is not a segment: nextitem-serve names segments PARTITION-FIRST-LAST.jsonl.gz"
        ) from error


def _read(segment: Path) -> pl.DataFrame:
    """Raises DataError, and FileNotFoundError when it is there no longer."""
    try:
        packed = segment.read_bytes()
        if not packed:  # to gzip that is nothing, well packed; no segment is ever written so
            raise EOFError  # noqa: TRY301 - as gzip says it of what is cut short
        content = gzip.decompress(packed)
        rows = pl.read_ndjson(io.BytesIO(content), schema=_COLUMNS) if content else pl.DataFrame(schema=_COLUMNS)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{segment} is damaged: take it from a backup, or leave it out") from error
    incomplete = rows.select(pl.any_horizontal(pl.col("user_id", "event_id", "item_id", "timestamp").is_null()))
    if incomplete.to_series().any():
        line = int(incomplete.to_series().arg_true()[0]) + 1
        raise DataError(f"{segment}, line {line}: an event has user_id, event_id, item_id and timestamp")
    return rows

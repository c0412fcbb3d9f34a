"""Text and Parquet tables by polars, with faults that name file, line and column."""

import csv
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from training.errors import DataError

SEPARATORS = {"csv": ",", "tsv": "\t"}


def read_table(path: Path, kind: str) -> pl.DataFrame:
    """Read a csv, tsv or parquet file with its header; text columns stay text. Raises DataError."""
    with _polars_faults(path, kind):
        if kind == "parquet":
            return pl.read_parquet(path)
        return pl.read_csv(path, separator=SEPARATORS[kind], infer_schema=False)


def read_lines(path: Path) -> pl.Series:
    """The lines of a text file, null where one is blank. Raises DataError."""
    with _polars_faults(path, "lines"):
        table = pl.read_csv(
            path, separator="\x01", has_header=False, new_columns=["line"], infer_schema=False, quote_char=None
        )
    return table["line"]


def cast_column(path: Path, column: pl.Series, kind: type[pl.DataType], wanted: str) -> pl.Series:
    """A column as text (every cell must be) or as numbers (null where a cell is none). Raises DataError."""
    try:
        if column.dtype.is_nested():
            raise pl.exceptions.InvalidOperationError("cells that hold several values")
        return column.cast(kind, strict=kind == pl.String)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: column {column.name!r} has the type {column.dtype}, not {wanted}") from error


class RowLocator:
    """Names the line of a bad row. Rows carry their number in the column `row`, from 0."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path = path
        self._noun = {"parquet": "row", "segments": "event"}.get(kind, "line")
        self._first = 2 if kind in SEPARATORS else 1  # the header is line 1

    def refuse(self, rows: pl.DataFrame, bad: pl.Series, what: str) -> None:
        """Raise DataError for the first bad row, if there is one."""
        if bad.any():
            row = int(rows["row"].gather(bad.arg_true()[:1])[0]) + self._first
            more = int(bad.sum()) - 1
            raise DataError(f"{self._path}, {self._noun} {row}: {what}{f' ({more} more like it)' if more else ''}")


@contextmanager
def _polars_faults(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except pl.exceptions.NoDataError as error:
        raise DataError(f"{path} is empty") from error
    except (pl.exceptions.PolarsError, OSError) as error:
        place = _find_bad_line(path, SEPARATORS[kind]) if kind in SEPARATORS else None
        if place:
            raise DataError(f"{path}, {place}") from error
        raise DataError(f"{path} cannot be read as {kind}: {str(error).splitlines()[0]}") from error


def _find_bad_line(path: Path, separator: str) -> str | None:
    """The first line with a bad quote or more fields than the header, which polars refuses without saying where."""
    begin = 1
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            rows = csv.reader(file, delimiter=separator, strict=True)
            width = len(next(rows))
            for row in rows:
                if len(row) > width:
                    return f"line {rows.line_num}: {len(row)} fields where the header has {width}"
                begin = rows.line_num + 1
    except csv.Error:
        return f"line {begin}: a field with quotes that do not match"
    except (OSError, ValueError, EOFError, StopIteration):
        return None
    return None

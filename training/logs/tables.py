"""Text and Parquet tables by polars, a block at a time, with faults that name file, line and column."""

import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import polars as pl

from model.contract.event_logs.errors import LogError
from model.contract.event_logs.form import CSV, HEAD_BYTES, JSON_LINES, PARQUET, Form, find_form, name_kind, open_bytes
from model.contract.event_logs.rows import read_rows
from training.errors import DataError

ROW = "row"
"""The column of row numbers, from 0."""

Report = Callable[[int, int], None]
"""Is told how many bytes of a file were read, and of how many."""

_BLOCK_BYTES = 32 << 20
_MOST_BLOCKS = 8
"""A row that is longer than so many blocks is none."""
_ZST = b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
_BLANK_LINES = re.compile(rb"(?m)^[ \t\r]*\n")


_SLOW_ROWS = 100_000


class _Malformed(Exception):
    """What polars does not read as it is meant."""


def find_table(path: Path, asked: str) -> Form:
    """The form of a file, its columns among it. `asked` is a format or auto. Raises DataError."""
    with _name_faults(path, "a table"):
        kind = name_kind(path, asked)
        if kind != PARQUET:
            content, file = _open(path)
            with content, file:
                return find_form(path, kind, content.read(HEAD_BYTES))
    with _name_faults(path, "Parquet"):
        return Form(PARQUET, tuple(pl.read_parquet_schema(path)))


def read_table(path: Path, form: Form, columns: Mapping[str, str], report: Report | None = None) -> pl.DataFrame:
    """Some columns under names of our own, by which `columns` has theirs, and the number of each row in ROW.

    The columns of text files are text. Blank lines and headers count but give nothing. Raises DataError.
    """
    with _name_faults(path, form.description):
        if form.kind == PARQUET:
            table = pl.read_parquet(path, columns=list(dict.fromkeys(columns.values())))
            return table.select(pl.col(name).alias(own) for own, name in columns.items()).with_row_index(ROW)
        try:
            rows = pl.concat(_read_blocks(path, form, columns, report)).with_row_index(ROW)
        except (_Malformed, pl.exceptions.PolarsError):
            return _read_slowly(path, form, columns, report)
    rows = rows.filter(~pl.all_horizontal(pl.exclude(ROW).is_null()))
    return rows.slice(1) if form.kind == CSV and form.has_header else rows


def read_lines(path: Path) -> pl.Series:
    """The lines of a text file, null where one is blank. Raises DataError."""
    with _name_faults(path, "lines"):
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
    """Names the line of a bad row. Rows carry their number in the column ROW."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self._noun = {PARQUET: "row", "segments": "event"}.get(kind, "line")

    def name(self, rows: pl.DataFrame, bad: pl.Series) -> str:
        """The place of the first bad row: line 12."""
        return f"{self._noun} {int(rows[ROW].gather(bad.arg_true()[:1])[0]) + 1}"

    def refuse(self, rows: pl.DataFrame, bad: pl.Series, what: str) -> None:
        """Raise DataError for the first bad row, if there is one."""
        if bad.any():
            more = int(bad.sum()) - 1
            place = self.name(rows, bad)
            raise DataError(f"{self.path}, {place}: {what}{f' ({more:,} more like it)' if more else ''}")


@contextmanager
def _name_faults(path: Path, wanted: str) -> Iterator[None]:
    try:
        yield
    except LogError as error:
        raise DataError(str(error)) from error
    except pl.exceptions.NoDataError as error:
        raise DataError(f"{path} is empty") from error
    except (pl.exceptions.PolarsError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as {wanted}: {str(error).splitlines()[0]}") from error


def _open(path: Path) -> tuple[BinaryIO, BinaryIO]:
    """The unpacked content, and the file whose position says how far it was read."""
    content, file = open_bytes(path)
    if content is not file or file.read(len(_ZST)) != _ZST:
        file.seek(0)
        return content, file
    lines = read_lines(path).fill_null("")  # polars unpacks it, at once: the standard library does not
    return io.BytesIO(lines.str.join("\n").item().encode() + b"\n"), file


def _read_blocks(path: Path, form: Form, columns: Mapping[str, str], report: Report | None) -> Iterator[pl.DataFrame]:
    """The table in pieces, with a row for every line, blank ones too, and one for the header."""
    parse = _parse_objects if form.kind == JSON_LINES else _parse_fields
    total = path.stat().st_size
    content, file = _open(path)
    yield pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    with content, file:
        for block in _cut_blocks(content, quoted=form.kind == CSV):
            yield parse(form, block, columns)
            if report is not None:
                report(file.tell(), total)


def _cut_blocks(content: BinaryIO, *, quoted: bool) -> Iterator[bytes]:
    """Blocks of whole rows. Where rows may be quoted, none is cut inside quotes."""
    block = content.read(len(_BOM)).removeprefix(_BOM) + content.read(_BLOCK_BYTES)
    while following := content.read(_BLOCK_BYTES):
        end = _find_end(block, quoted=quoted)
        if not end and len(block) > _MOST_BLOCKS * _BLOCK_BYTES:
            raise _Malformed
        if end:
            yield block[:end]
        block = block[end:] + following
    if block.strip():
        yield block


def _find_end(block: bytes, *, quoted: bool) -> int:
    """Where the last whole row ends: behind a newline before which the quotes are even in number."""
    end = block.rfind(b"\n") + 1
    odd = quoted and block.count(b'"', 0, end) % 2 == 1
    while odd and end:
        before = block.rfind(b"\n", 0, block.rfind(b'"', 0, end)) + 1
        odd = block.count(b'"', before, end) % 2 == 0
        end = before
    return end


def _parse_fields(form: Form, block: bytes, columns: Mapping[str, str]) -> pl.DataFrame:
    """A block of a separated table. All columns are read: that is how a row with too many is noticed."""
    places = [str(place) for place in range(len(form.names))]
    header = form.delimiter.join(places).encode() + b"\n"
    table = pl.read_csv(header + form.join(block), separator=form.delimiter, infer_schema=False)
    return table.select(pl.col(places[form.names.index(name)]).alias(own) for own, name in columns.items())


def _parse_objects(form: Form, block: bytes, columns: Mapping[str, str]) -> pl.DataFrame:  # noqa: ARG001 - as the other
    """A block of JSON lines."""
    block = _BLANK_LINES.sub(b"{}\n", block) if _BLANK_LINES.search(block) else block  # polars would not count them
    table = pl.read_ndjson(io.BytesIO(block), schema=dict.fromkeys(columns.values(), pl.String))
    if table.select(pl.any_horizontal(pl.all().str.contains(r"^[\[{]")).any()).item():
        raise _Malformed  # polars makes text of lists and objects, or it is text that begins so
    return table.select(pl.col(name).alias(own) for own, name in columns.items())


def _read_slowly(path: Path, form: Form, columns: Mapping[str, str], report: Report | None) -> pl.DataFrame:
    """The table by the standard library, which says where a fault is.

    And it reads what polars cannot: a quote inside a field, such as 5", and JSON texts that begin with a bracket.
    """
    schema = {ROW: pl.get_index_type(), **dict.fromkeys(columns, pl.String)}
    parts = [pl.DataFrame(schema=schema)]
    total = path.stat().st_size
    content, file = _open(path)
    with content, file:
        rows = read_rows(path, form, content, list(columns.values()))
        while part := [(line - 1, *(cell or None for cell in cells)) for line, cells in islice(rows, _SLOW_ROWS)]:
            parts.append(pl.DataFrame(part, schema=schema, orient="row"))
            if report is not None:
                report(file.tell(), total)
    return pl.concat(parts)

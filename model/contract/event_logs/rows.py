"""The rows of a log file as texts, one after the other, each with its line; none may be longer than 1 MiB."""

import csv
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from model.contract.event_logs.errors import LogError
from model.contract.event_logs.form import CSV, JSON_LINES, PAIRS, Form

Row = tuple[int, list[str]]
"""The line where it begins, from 1, and the cells that were asked for; "" where there is none."""

OnBad = Callable[[LogError], None]
"""Is handed the fault of a row, which is left out unless it is raised."""

LONGEST_LINE = 1 << 20
_BOM = b"\xef\xbb\xbf"


def refuse(error: LogError) -> None:
    """Raise the fault of a row."""
    raise error


def read_rows(path: Path, form: Form, content: BinaryIO, names: Sequence[str], on_bad: OnBad = refuse) -> Iterator[Row]:
    """The rows of a text file in their order, of each the cells of the columns `names`. Raises LogError.

    Blank lines, and those without any of these cells, give none.
    """
    return _READERS[form.kind](path, form, _read_lines(path, content), names, on_bad)


def _read_object(path: Path, number: int, line: str, names: Sequence[str]) -> list[str]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        raise LogError(f"{path}, line {number}: not a JSON object: write one object a line")
    cells = [_write_cell(entry.get(name)) for name in names]
    if None in cells:
        name = names[cells.index(None)]
        raise LogError(f"{path}, line {number}: {name!r} is neither text nor a number")
    return [cell or "" for cell in cells]


def _write_cell(value: object) -> str | None:
    """A value as a table would hold it, None for objects and lists."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int | float) else None


def _read_lines(path: Path, content: BinaryIO) -> Iterator[str]:
    number = 0
    try:
        while line := content.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise LogError(f"{path}, line {number}: longer than 1 MiB, so that it is no event")
            yield (line.removeprefix(_BOM) if number == 1 else line).decode()
    except UnicodeDecodeError as error:
        raise LogError(f"{path}, line {number}: not UTF-8: save the file as UTF-8") from error
    except (EOFError, OSError, zlib.error) as error:
        raise LogError(f"{path} cannot be read on after line {number}: {error}") from error


def _read_table(path: Path, form: Form, lines: Iterator[str], names: Sequence[str], on_bad: OnBad) -> Iterator[Row]:
    double = len(form.separator) > 1
    rows = csv.reader(
        (line.replace(form.separator, form.delimiter) for line in lines) if double else lines,
        delimiter=form.delimiter,
        strict=True,
    )
    places = [form.names.index(name) for name in names]
    width, begin, header = len(form.names), 1, form.has_header
    widest = "the header" if header else "the first line"
    try:
        for fields in rows:
            number, begin = begin, rows.line_num + 1
            if header or not fields:
                header = header and not fields
                continue
            if len(fields) > width:
                on_bad(LogError(f"{path}, line {number}: {len(fields)} fields where {widest} has {width}"))
                continue
            fields.extend([""] * (width - len(fields)))
            cells = [fields[place] for place in places]
            if any(cells):
                yield number, cells
    except csv.Error as error:
        raise LogError(f"{path}, line {begin}: a field with quotes that do not match") from error


def _read_objects(
    path: Path,
    form: Form,  # noqa: ARG001 - as the others
    lines: Iterator[str],
    names: Sequence[str],
    on_bad: OnBad,
) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            cells = _read_object(path, number, line, names)
        except LogError as error:
            on_bad(error)
            continue
        if any(cells):
            yield number, cells


def _read_pairs(
    path: Path,
    form: Form,  # noqa: ARG001 - as the others
    lines: Iterator[str],
    names: Sequence[str],  # noqa: ARG001 - user and item are all that there is, in this order
    on_bad: OnBad,  # noqa: ARG001 - one such line says that the file is no such file
) -> Iterator[Row]:
    folded: set[str] = set()
    for number, line in enumerate(lines, start=1):
        user, *items = line.split() or [""]
        if not user:
            continue
        if not items:
            raise LogError(f"{path}, line {number}: neither `user item` nor a user with all items")
        if len(items) > 1:
            if user in folded:
                raise LogError(f"{path}, line {number}: not `user item`, nor a user's only line with all items")
            folded.add(user)
        for item in items:
            yield number, [user, item]


_READERS: Mapping[str, Callable[[Path, Form, Iterator[str], Sequence[str], OnBad], Iterator[Row]]] = {
    CSV: _read_table,
    JSON_LINES: _read_objects,
    PAIRS: _read_pairs,
}

"""The rows of a log file as texts, one after the other, each with its line; none may be longer than 1 MiB."""

import csv
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from model.contract.event_logs.columns import ROLES
from model.contract.event_logs.errors import LogError
from model.contract.event_logs.form import CSV, JSON_LINES, PAIRS, Form

Row = tuple[int, str, str, str, str, str]
"""The line where it begins, from 1, and the cells of ROLES; "" where there is none."""

LONGEST_LINE = 1 << 20
_BOM = b"\xef\xbb\xbf"


def refuse(error: LogError) -> None:
    """Raise the fault of a row: what becomes of it unless somebody counts such rows."""
    raise error


def read_rows(
    path: Path,
    form: Form,
    content: BinaryIO,
    roles: Mapping[str, str],
    on_bad: Callable[[LogError], None] = refuse,
) -> Iterator[Row]:
    """The rows of a text file in their order, `roles` naming the columns. Blank lines give none. Raises LogError.

    `on_bad` gets the fault of a row that is left out, where it does not raise it.
    """
    return _READERS[form.kind](path, form, _read_lines(path, content), roles, on_bad)


def read_object(path: Path, number: int, line: str) -> dict[str, object]:
    """The object of a JSON line. Raises LogError."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path}, line {number}: not a JSON object: write one object a line") from error
    if not isinstance(entry, dict):
        raise LogError(f"{path}, line {number}: not a JSON object: write one object a line")
    return entry


def write_cell(value: object) -> str | None:
    """A JSON value as a table would hold it, None for objects and lists."""
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


def _read_table(
    path: Path, form: Form, lines: Iterator[str], roles: Mapping[str, str], on_bad: Callable[[LogError], None]
) -> Iterator[Row]:
    double = len(form.separator) > 1
    rows = csv.reader(
        (line.replace(form.separator, form.delimiter) for line in lines) if double else lines,
        delimiter=form.delimiter,
        strict=True,
    )
    places = [form.names.index(roles[role]) if role in roles else None for role in ROLES]
    width, begin, header = len(form.names), 1, form.has_header
    try:
        for fields in rows:
            number, begin = begin, rows.line_num + 1
            if header or not fields:
                header = header and not fields
                continue
            if len(fields) > width:
                on_bad(LogError(f"{path}, line {number}: {len(fields)} fields where the first line has {width}"))
                continue
            last = len(fields)
            user, item, time, kind, value = (
                "" if place is None or place >= last else fields[place] for place in places
            )
            if user or item or time or kind or value:
                yield number, user, item, time, kind, value
    except csv.Error as error:
        raise LogError(f"{path}, line {begin}: a field with quotes that do not match") from error


def _read_objects(
    path: Path,
    form: Form,  # noqa: ARG001 - as the others
    lines: Iterator[str],
    roles: Mapping[str, str],
    on_bad: Callable[[LogError], None],
) -> Iterator[Row]:
    names = [roles.get(role) for role in ROLES]
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            entry = read_object(path, number, line)
        except LogError as error:
            on_bad(error)
            continue
        cells = [write_cell(entry.get(name)) if name else "" for name in names]
        if None in cells:
            name = roles[ROLES[cells.index(None)]]
            on_bad(LogError(f"{path}, line {number}: {name!r} is neither text nor a number"))
            continue
        user, item, time, kind, value = (cell or "" for cell in cells)
        if user or item or time or kind or value:
            yield number, user, item, time, kind, value


def _read_pairs(
    path: Path,
    form: Form,  # noqa: ARG001 - as the others
    lines: Iterator[str],
    roles: Mapping[str, str],  # noqa: ARG001 - as the others
    on_bad: Callable[[LogError], None],  # noqa: ARG001 - one such line says that the file is no such file
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
            yield number, user, item, "", "", ""


_READERS: Mapping[
    str, Callable[[Path, Form, Iterator[str], Mapping[str, str], Callable[[LogError], None]], Iterator[Row]]
] = {
    CSV: _read_table,
    JSON_LINES: _read_objects,
    PAIRS: _read_pairs,
}

"""Reads the events of a log file one by one, in constant memory and with the standard library alone."""

import itertools
import math
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from model.contract.event_logs.columns import ITEM, ROLES, TIME, USER, VALUE, find_columns
from model.contract.event_logs.errors import LogError
from model.contract.event_logs.form import (
    HEAD_BYTES,
    PAIRS,
    PARQUET,
    Form,
    describe_reading,
    find_form,
    name_kind,
    open_bytes,
)
from model.contract.event_logs.ids import ID_RULE, NO_IDS, WAY_OUT, encode_id
from model.contract.event_logs.options import LogOptions
from model.contract.event_logs.rows import OnBad, Row, read_rows, refuse
from model.contract.event_logs.times import TimeFault, TimeReader
from model.contract.id_rule import is_valid_id

_SAMPLE = 10_000
"""So many rows are read ahead to tell the unit of their times."""
_NO_IDS = frozenset(NO_IDS)
_ZST, _PARQUET = b"\x28\xb5\x2f\xfd", b"PAR1"


class Event(NamedTuple):
    """One event. Its ids keep the id rule."""

    line: int
    """The line of the file where it begins, from 1."""
    user_id: str
    item_id: str
    timestamp_ms: int | None
    """Epoch milliseconds, None where the log has no times."""
    type: str | None
    value: float | None


class EventLog:
    """An open log file. Iterate over it once, and close it or use it as a context manager."""

    def __init__(
        self, path: Path, options: LogOptions, form: Form, content: BinaryIO, file: BinaryIO, *, on_bad: OnBad
    ) -> None:
        self.skipped = 0
        """Events that were left out so far because an id is missing."""
        self.first_skipped: int | None = None
        """The line of the first of them."""
        self.total_bytes = path.stat().st_size
        required = (USER, ITEM) if form.kind == PAIRS else (USER, ITEM, TIME)
        self.roles = find_columns(path, form.names, options.columns, required)
        self._path, self._options, self._form = path, options, form
        self._content, self._file = content, file
        self._on_bad = on_bad
        self._rows = read_rows(path, form, content, list(self.roles.values()), on_bad)
        names = list(self.roles)
        self._pick = itemgetter(*(names.index(role) if role in names else -1 for role in ROLES))
        self._ahead = list(itertools.islice(self._rows, _SAMPLE))
        self._times = self._begin_times()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._content.close()
        self._file.close()

    @property
    def read_bytes(self) -> int:
        """Bytes of the file that were read so far, of `total_bytes`."""
        return self.total_bytes if self._file.closed else self._file.tell()

    @property
    def description(self) -> str:
        """How the file is read, in one line."""
        return describe_reading(self._form, self.roles, self._times.description if self._times else None)

    def __iter__(self) -> Iterator[Event]:
        """The events in the order of the file. Raises LogError."""
        ahead, self._ahead = self._ahead, []
        for row in itertools.chain(ahead, self._rows):
            try:
                event = self._read_event(row)
            except LogError as error:
                self._on_bad(error)
                continue
            if event is not None:
                yield event

    def _read_event(self, row: Row) -> Event | None:
        """The event of a row, None where an id is missing. Raises LogError."""
        line, cells = row
        cells.append("")  # the cell of a role that has no column
        user, item, time, kind, value = self._pick(cells)
        user_id, item_id = self._read_id(line, user, USER), self._read_id(line, item, ITEM)
        if user_id is None or item_id is None:
            self.skipped += 1
            self.first_skipped = self.first_skipped or line
            return None
        return Event(
            line,
            user_id,
            item_id,
            self._read_time(line, time) if self._times else None,
            kind or None,
            self._read_value(line, value) if value else None,
        )

    def _begin_times(self) -> TimeReader | None:
        if TIME not in self.roles:
            return None
        place = list(self.roles).index(TIME)
        timed = [(line, cells[place]) for line, cells in self._ahead if cells[place].strip()]
        try:
            return TimeReader((cell for _, cell in timed), zone=self._options.time_zone, unit=self._options.time_unit)
        except TimeFault as fault:
            raise self._fail(timed[0][0], f"{fault} (column {self.roles[TIME]!r})") from fault

    def _read_id(self, line: int, cell: str, role: str) -> str | None:
        """The id as the service takes it, None where it is missing and such events are left out. Raises LogError."""
        rule, encodes = self._options.missing_ids, self._options.ids == "percent"
        if is_valid_id(cell):
            if cell not in _NO_IDS or rule == "keep":
                return encode_id(cell) if encodes and "%" in cell else cell
        elif cell and not cell.isspace():
            return self._encode(line, cell, role)
        if rule != "skip":
            raise self._fail(line, f"no {role}; --missing-ids skip leaves such events out")
        return None

    def _encode(self, line: int, cell: str, role: str) -> str:
        """An id that breaks the id rule, so that it keeps it."""
        if self._options.ids == "plain":
            raise self._fail(line, f"the id of the {role} is not {ID_RULE}; {WAY_OUT}")
        encoded = encode_id(cell)
        if not is_valid_id(encoded):
            raise self._fail(line, f"the id of the {role} is too long: encoded it has {len(encoded)} characters")
        return encoded

    def _read_time(self, line: int, cell: str) -> int:
        if not cell or cell.isspace():
            raise self._fail(line, f"no {self.roles[TIME]}")
        assert self._times is not None  # noqa: S101 - asked only where there are times
        try:
            return self._times.read(cell)
        except TimeFault as fault:
            raise self._fail(line, f"{fault} (column {self.roles[TIME]!r})") from fault

    def _read_value(self, line: int, cell: str) -> float:
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self._fail(line, f"{self.roles[VALUE]!r} is no number; --columns value= reads none")
        return value

    def _fail(self, line: int, what: str) -> LogError:
        return LogError(f"{self._path}, line {line}: {what}")


def open_log(path: Path, options: LogOptions, on_bad: OnBad = refuse) -> EventLog:
    """Open a log file of text, plain or gzipped, and find its form, columns and times.

    `on_bad` gets the fault of each row that has one, and the row is left out; without it the first one is raised.
    Faults of the file as a whole are raised in any case.

    Raises LogError, for Parquet and Zstandard too: the standard library reads neither.
    """
    if not path.is_file():
        raise LogError(f"{path} is not a file")
    content, file = open_bytes(path)
    try:
        form = _look_at(path, name_kind(path, options.format), content)
        return EventLog(path, options, form, content, file, on_bad=on_bad)
    except (EOFError, OSError) as error:
        file.close()
        raise LogError(f"{path} cannot be read: {error}") from error
    except BaseException:
        file.close()
        raise


def _look_at(path: Path, kind: str, content: BinaryIO) -> Form:
    head = content.read(HEAD_BYTES)
    if kind == PARQUET or head.startswith((_ZST, _PARQUET)):
        raise LogError(f"{path}: Parquet and .zst are read by nextitem-train only: write CSV or JSON lines, also .gz")
    content.seek(0)
    return find_form(path, kind, head)

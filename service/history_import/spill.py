"""Sorts a log by user in bounded memory: users are dealt to temporary files, which are then taken up one by one.

The files have no name: whatever ends the process, nothing of them is left.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TextIO

FILE_BYTES: Final = 8 << 20
"""What a file should hold. Taken up it needs some ten times as much memory."""
MAX_FILES: Final = 240
"""As many as a process may open anywhere, and room for others."""
PENDING: Final = 100_000
"""Rows that are held back to be written together."""
PRUNE_AT: Final = 4
"""A user's rows are cut to the newest ones when there are so many times as many."""

TIME_DIGITS: Final = 13
_time = itemgetter(slice(TIME_DIGITS))


class UserRows(NamedTuple):
    """What is imported of one user."""

    user_id: str
    rows: list[str]
    """`time item type value` each, `-` for no value, in the order of their times, and of the file where these tie."""
    repeated: int
    """How many were the same as another."""
    contradicting: int
    """How many had the user, item, type and time of another, but another value. The first one counts."""
    old: int
    """How many were older than the newest ones that are kept."""


class Spill:
    """Rows by user. Use it as a context."""

    def __init__(self, *, expected_bytes: int, folder: Path | None = None) -> None:
        """`expected_bytes`: the size of the log, unpacked. Raises OSError."""
        count = min(max(1, -(-expected_bytes // FILE_BYTES)), MAX_FILES)
        self._files = ExitStack()
        self._parts = [self._files.enter_context(_open_unnamed(folder)) for _ in range(count)]
        self._pending: list[list[str]] = [[] for _ in range(count)]
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def add(self, user_id: str, timestamp_ms: int, item_id: str, event_type: str, value: float | None) -> None:
        """Add an event. Raises OSError where there is no room."""
        written = "-" if value is None else repr(value)
        pending = self._pending[hash(user_id) % len(self._parts)]
        pending.append(f"{user_id} {timestamp_ms:013d} {item_id} {event_type} {written}\n")
        self._held += 1
        if self._held == PENDING:
            self._flush()

    def take_users(self, *, keep: int | None) -> Iterator[UserRows]:
        """All users, each once, with the newest `keep` distinct rows; None keeps all. Raises OSError."""
        self._flush()
        for part in self._parts:
            part.seek(0)
            users: dict[str, list[str]] = {}
            pruned: dict[str, tuple[int, int, int]] = {}
            for line in part:
                user_id, _, row = line[:-1].partition(" ")
                rows = users.get(user_id)
                if rows is None:
                    rows = users[user_id] = []
                rows.append(row)
                if keep is not None and len(rows) >= PRUNE_AT * keep:
                    users[user_id], *counts = _arrange(rows, keep)
                    before = pruned.get(user_id, (0, 0, 0))
                    pruned[user_id] = (before[0] + counts[0], before[1] + counts[1], before[2] + counts[2])
            part.truncate(0)  # its room on the disk is free again
            while users:
                user_id, rows = users.popitem()
                arranged, *counts = _arrange(rows, keep)
                before = pruned.get(user_id, (0, 0, 0))
                yield UserRows(user_id, arranged, before[0] + counts[0], before[1] + counts[1], before[2] + counts[2])

    def _flush(self) -> None:
        for part, rows in zip(self._parts, self._pending, strict=True):
            part.write("".join(rows))
            rows.clear()
        self._held = 0


def _open_unnamed(folder: Path | None) -> TextIO:
    return tempfile.TemporaryFile(mode="w+", encoding="ascii", newline="", dir=folder)


def _arrange(rows: list[str], keep: int | None) -> tuple[list[str], int, int, int]:
    """Rows in the order of their times, each once; how many were repeated, contradicted another, and were too old."""
    first: dict[str, str] = {}
    repeated = contradicting = 0
    for row in rows:
        found = first.setdefault(row.rpartition(" ")[0], row)
        if found is not row:
            if found == row:
                repeated += 1
            else:
                contradicting += 1
    distinct = sorted(first.values(), key=_time)  # stable
    old = 0 if keep is None else max(0, len(distinct) - keep)
    return distinct[old:], repeated, contradicting, old

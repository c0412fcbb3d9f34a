"""The last problems of all workers, for who looks after the service: degraded answers, and errors that are its own.

A problem is a time, a route's template, a status, a reason and a request id: no input, and no id of a user or an item.
Alike ones within a minute are one row with a count. Several workers each write theirs to a file in the folder of their
metrics, at most once a second, and only after a problem. A worker that is alone keeps them in memory.
"""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import orjson

PROBLEM: Final = "problem"
"""Key of a request's state: the reason of its problem. Set for problems only."""
KEPT: Final = 100
ALIKE_S: Final = 60.0
WRITE_EVERY_S: Final = 1.0
FILES_KEPT: Final = 300
"""More than there are workers. Files of dead ones are kept: how a worker ended is what one wants to know."""
FILE_MAX_BYTES: Final = 64 * 1024
_FILE: Final = "problems-{}.json"


@dataclass(slots=True)
class NotedProblem:
    """Alike problems within ALIKE_S. Times are in milliseconds since 1970; `request_id` is the last one's."""

    first_ms: int
    last_ms: int
    route: str
    code: int
    reason: str
    request_id: str
    count: int = 1


class ProblemLog:
    """The last KEPT problems of this worker, and those that the others wrote down."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is shared by several workers; None for a worker that is alone."""
        self._folder = folder
        self._rows: deque[NotedProblem] = deque(maxlen=KEPT)
        self._newest: dict[tuple[str, int, str], NotedProblem] = {}
        """By route, status and reason, which are bounded sets."""
        self._changed = False

    def note(self, *, route: str, code: int, reason: str, request_id: str) -> None:
        """Note the problem of a request. `route` is a template."""
        now_ms = int(time.time() * 1000)
        row = self._newest.get((route, code, reason))
        if row is not None and 0 <= now_ms - row.first_ms < ALIKE_S * 1000:
            row.last_ms, row.request_id = now_ms, request_id
            row.count += 1
        else:
            row = self._newest[route, code, reason] = NotedProblem(now_ms, now_ms, route, code, reason, request_id)
            self._rows.append(row)
        self._changed = True

    async def keep_written(self) -> None:
        """Write this worker's problems for the others, once a second while there are new ones."""
        if self._folder is None:
            return
        await asyncio.to_thread(_remove_oldest, self._folder)
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            if self._changed:
                self._changed = False
                content = orjson.dumps([astuple(row) for row in self._rows])
                await asyncio.to_thread(_write, self._folder, content)

    async def read(self) -> list[NotedProblem]:
        """The newest KEPT problems of all workers, the newest first; the others' as of a second ago."""
        others = [] if self._folder is None else await asyncio.to_thread(_read_others, self._folder)
        return _newest_first([*self._rows, *others])[:KEPT]


def _newest_first(rows: Iterable[NotedProblem]) -> list[NotedProblem]:
    return sorted(rows, key=attrgetter("last_ms"), reverse=True)


def _write(folder: Path, content: bytes) -> None:
    """Replace this worker's file whole. A full disk loses problems, and nothing else."""
    file = folder / _FILE.format(os.getpid())
    with contextlib.suppress(OSError):
        file.with_suffix(".partial").write_bytes(content)
        file.with_suffix(".partial").replace(file)


def _read_others(folder: Path) -> list[NotedProblem]:
    """The rows of all other workers' files, as far as they can be read."""
    mine = _FILE.format(os.getpid())
    rows = (row for file in _list_files(folder) if file.name != mine for row in _read_file(file))
    return _newest_first(rows)[:KEPT]


def _read_file(file: Path) -> Iterator[NotedProblem]:
    with contextlib.suppress(OSError, ValueError, TypeError):
        with file.open("rb") as opened:
            content = opened.read(FILE_MAX_BYTES)
        rows: Sequence[Sequence[Any]] = orjson.loads(content)
        yield from (NotedProblem(*row) for row in rows)


def _list_files(folder: Path) -> list[Path]:
    return list(folder.glob(_FILE.format("*")))


def _remove_oldest(folder: Path) -> None:
    """Keep FILES_KEPT files, the newest: workers that die again and again would leave ever more of them."""
    with contextlib.suppress(OSError):
        files = sorted(_list_files(folder), key=lambda file: file.stat().st_mtime, reverse=True)
        for file in files[FILES_KEPT:]:
            file.unlink(missing_ok=True)

"""Shows how far the reading of a log is: a bar on a terminal, and nothing elsewhere or for what is read at once."""

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

_QUIET_SECONDS = 1.0


class ReadingBar:
    """A bar for one file, on stderr, that is gone when the file is read."""

    def __init__(self, path: Path, console: Console | None = None) -> None:
        self._name = path.name
        self._console = console or Console(stderr=True)
        self._begun = time.monotonic()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int) -> None:
        """Take the bytes that were read, and of how many."""
        if self._bar is None:
            if not self._console.is_terminal or time.monotonic() - self._begun < _QUIET_SECONDS:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(f"reading {self._name}")
        self._bar.update(self._task, completed=done, total=total)

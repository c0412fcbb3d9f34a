"""A process that is killed between two syscalls: those before it have happened, none after it does."""

# ruff: noqa: ANN401 - it stands in for functions of any signature

import builtins
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from model.contract import atomic_files

CALLS = ("open", "write", "fsync", "ftruncate", "replace", "rename", "unlink", "rmdir", "mkdir")


class Killed(BaseException):
    """The process is no more. What catches Exception or OSError does not catch this."""


class Countdown:
    """Lets so many calls pass and ends the process at the next; from then on nothing happens any more."""

    def __init__(self, passing: int | None) -> None:
        self.left = passing
        self.killed = False

    def count(self, *, is_write: bool = False) -> bool:
        """Count a call. Raises Killed, or says True for a write that ends the process half done."""
        if self.killed:
            raise Killed
        if self.left is None:
            return False
        self.left -= 1
        if self.left < 0:
            self.killed = True
            if is_write:
                return True
            raise Killed
        return False


class _File:
    """A file whose writes count. What it wrote before the end is in the file."""

    def __init__(self, file: Any, countdown: Countdown) -> None:
        self._file, self._countdown = file, countdown

    def write(self, content: bytes) -> int:
        torn = self._countdown.count(is_write=True)
        written = self._file.write(content[: len(content) // 2] if torn else content)
        self._file.flush()
        if torn:
            raise Killed
        return int(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextmanager
def killed_after(passing: int | None) -> Iterator[Countdown]:
    """End whoever works in the context at its call number `passing` + 1; None lets it live. Swallows Killed."""
    countdown = Countdown(passing)

    def counting(name: str) -> Any:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            if name == "write" and countdown.count(is_write=True):
                descriptor, content = args
                real(descriptor, content[: len(content) // 2])
                raise Killed
            if name != "write":
                countdown.count()
            return real(*args, **options)

        return call

    def open_counting(*args: Any, **options: Any) -> Any:
        return _File(builtins.open(*args, **options), countdown)  # noqa: PTH123 - as it was called

    with ExitStack() as stack:
        for name in CALLS:
            stack.enter_context(patch.object(os, name, counting(name)))
        stack.enter_context(patch.object(atomic_files, "open", open_counting, create=True))
        try:
            yield countdown
        except Killed:
            if not countdown.killed:
                raise

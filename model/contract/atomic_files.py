"""Files and folders that a crash leaves whole: written aside, synced, renamed. And files read without ever waiting."""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

_LOCK_RETRY_S = 0.05


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Up to `max_bytes` of a regular file. A pipe or a device is refused at once, where to read it might never end.

    Raises OSError.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return source.read(max_bytes)


def write_whole(path: Path, content: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None) -> None:
    """Replace a file: a reader sees the old content or the new one, a crash leaves either.

    With `mode` exactly so, from its first byte on; with `owner`, a user and a group, theirs.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write_synced(aside, content, mode=mode, owner=owner)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_synced(path: Path, content: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None) -> None:
    """Write a file and have it on disk before returning."""
    with open(path, "wb", opener=partial(os.open, mode=0o666 if mode is None else stat.S_IRUSR)) as file:
        file.write(content)
        file.flush()
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        if owner not in (None, (os.geteuid(), os.getegid())):
            os.fchown(file.fileno(), *owner)
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Have a folder's entries, new names among them, on disk before returning."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold_lock(path: Path, *, patience_s: float, mode: int = 0o644) -> Iterator[None]:
    """Hold a lock file, which is made with `mode` where there is none. The kernel lets go of it when the process ends.

    Raises BlockingIOError if somebody else holds it for `patience_s` seconds, and OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        until_s = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until_s:
                    raise
                time.sleep(_LOCK_RETRY_S)
        yield
    finally:
        os.close(descriptor)

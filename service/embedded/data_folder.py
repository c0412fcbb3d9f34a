"""The embedded store's data folder: names of its files, lock, permissions, and rotation of its log."""

import contextlib
import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from service.errors import StartFailed
from service.system.memory import MIB

LOG_MAX_BYTES = 2 * MIB
LOG_GENERATIONS = 3
"""How many older logs are kept: valkey.log.1, the newest of them, to valkey.log.3."""

LOCK = "store.lock"
LOG = "valkey.log"
SOCKET = "store.sock"
APPEND_ONLY_FOLDER = "appendonlydir"
MANIFEST = "appendonly.aof.manifest"

PRIVATE_UMASK = 0o077

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def hold_data(data_dir: Path) -> Iterator[None]:
    """Hold the lock on the data while the context lasts. Raises StartFailed while a service uses it, and OSError."""
    with open(data_dir / LOCK, "a+b", opener=open_private) as lock:
        if not try_lock(lock.fileno()):
            raise StartFailed(f"a service uses {data_dir}: stop it first")
        yield


def is_in_use(data_dir: Path) -> bool:
    """Whether a service runs its store on `data_dir`. Raises OSError for a folder that may not be read."""
    try:
        with (data_dir / LOCK).open("rb") as lock:
            return not try_lock(lock.fileno())  # closing gives it back
    except FileNotFoundError:
        return False


def find_socket(data_dir: Path) -> Path:
    """The socket of the store that runs on `data_dir`. Raises StartFailed if none ever did."""
    try:
        return Path(os.fsdecode((data_dir / LOCK).read_bytes())) / SOCKET
    except OSError as error:
        raise StartFailed(f"{data_dir} holds no store: give the --data-dir that the service uses") from error


def try_lock(lock: int) -> bool:
    """Lock an open file. False if another process holds the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def rotate_log(log: Path) -> None:
    """Start a new log once this one exceeds LOG_MAX_BYTES; keep LOG_GENERATIONS older ones."""
    if not log.exists() or log.stat().st_size <= LOG_MAX_BYTES:
        return
    for number in range(LOG_GENERATIONS, 0, -1):
        newer = log if number == 1 else log.with_name(f"{log.name}.{number - 1}")
        if newer.exists():
            newer.replace(log.with_name(f"{log.name}.{number}"))


def make_private(data_dir: Path) -> None:
    """Remove other users' permissions from the store's files, which an older version left open.

    The data folder itself may hold other things: its permissions stay as they are.
    """
    folder = data_dir / APPEND_ONLY_FOLDER
    for path in (folder, *folder.glob("*"), *data_dir.glob(f"{LOG}*"), data_dir / LOCK):
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & PRIVATE_UMASK:
                path.chmod(mode & ~PRIVATE_UMASK)
    mode = data_dir.stat().st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        _log.warning("Other users may replace the files of the embedded store: run chmod go-w %s", data_dir)


def open_private(path: str, flags: int) -> int:
    """An opener for open(): a new file is readable by this user only."""
    return os.open(path, flags, 0o600)

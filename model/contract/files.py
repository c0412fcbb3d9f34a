"""Files and folders that a crash leaves whole: written aside, synced, renamed."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file: a reader sees the old content or the new one, a crash leaves either."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write_synced(aside, content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and have it on disk before returning."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Have a folder's entries, new names among them, on disk before returning."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

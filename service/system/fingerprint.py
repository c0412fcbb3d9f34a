"""Tells whether a file is still the one that was read, without reading it."""

from pathlib import Path


def stat_fingerprint(file: Path) -> tuple[int, ...] | None:
    """Values that change when the file is replaced, written or changes its mode; None if it does not exist."""
    try:
        state = file.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size

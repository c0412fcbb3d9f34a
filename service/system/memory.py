"""How much memory this process uses, and may use: the smaller of the machine's memory and its cgroup's limit."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

MIB = 1 << 20


def find_memory_bytes(root: Path = Path("/")) -> int:
    """The physical memory or the lowest limit of this process's cgroups and their parents, in bytes.

    `root` is the folder with /proc and /sys.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_read_limits(root)])


def _read_limits(root: Path) -> Iterator[int]:
    for file in _list_limit_files(root):
        with contextlib.suppress(OSError, ValueError):  # missing or `max`: no limit
            yield int(file.read_text())


def _list_limit_files(root: Path) -> Iterator[Path]:
    """The limit files of each cgroup of this process, version 2 or 1, up to the root of its hierarchy.

    In a container the path may be the host's and not exist. The root is then the container's own cgroup.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        for inside in (group, *group.parents):
            yield mount / inside / name


def read_resident_bytes() -> int | None:
    """The resident memory of this process; None without /proc."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def give_back_memory() -> None:
    """Give freed memory back to the system, where the C library can (malloc_trim(3), glibc). It releases the GIL."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

"""The folder through which several workers share their metrics. It is locked, so that a dead service's can be told.

A worker has a file for its counters, one for its histograms, and one for each kind of gauge. What a dead worker counted
still counts, so that its two files are added to those of all the dead, of which there are two however many died.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus_client looks for the folder, when it is first imported."""
LOCK = "lock"
READERS = "readers"
"""Locked, shared, by whoever reads the files of the folder; alone by who moves what they hold."""
COUNTS = ("counter", "histogram")
DEAD = "dead"
PREFIX = "nextitem-metrics-"


@contextlib.contextmanager
def make_metrics_folder() -> Iterator[Path]:
    """A new folder, removed at the end. Those that were left behind by a kill -9 are removed first."""
    remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        with (folder / "unlocked").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "unlocked").rename(folder / LOCK)  # nobody ever finds it without its lock
            yield folder


def remove_abandoned(parent: Path) -> None:
    """Remove the metrics folders of this user's services that are no more: the kernel has released their locks.

    A process id would not do: other containers may share the folder, and not the ids.
    """
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, in use, or gone already
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                with (folder / LOCK).open("rb") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)


@contextlib.contextmanager
def lock_readers(folder: Path, *, alone: bool) -> Iterator[None]:
    """Keep the files from being moved while they are read, or from being read while they are moved."""
    with (folder / READERS).open("ab") as readers:  # made anew if something that tidies temporary folders took it
        fcntl.flock(readers, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def bury_dead(alive: Collection[int], folder: Path) -> None:
    """Forget the gauges of every worker that is not alive, and keep what it counted."""
    owners = {file.stem.rpartition("_")[2] for file in folder.glob("*.db")} - {DEAD}
    for pid in map(int, owners):
        if pid not in alive:
            _bury(pid, folder)


def _bury(pid: int, folder: Path) -> None:
    # Imported late: what prometheus_client is at its first import depends on the environment.
    from prometheus_client.mmap_dict import MmapedDict  # noqa: PLC0415
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415

    with lock_readers(folder, alone=True):
        mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]  # the library leaves these untyped
        for kind in COUNTS:
            file = folder / f"{kind}_{pid}.db"
            if not file.exists():
                continue
            try:
                values = list(MmapedDict.read_all_values_from_file(str(file)))  # type: ignore[no-untyped-call]
            except (struct.error, RuntimeError, ValueError):  # half made: the worker died at its start
                values = []
            total = MmapedDict(str(folder / f"{kind}_{DEAD}.db"))  # type: ignore[no-untyped-call]
            for key, value, _, _ in values:
                total.write_value(key, total.read_value(key)[0] + value, 0.0)  # type: ignore[no-untyped-call]
            total.close()  # type: ignore[no-untyped-call]
            file.unlink()

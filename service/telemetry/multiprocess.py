"""The folder through which several workers share their metrics.

It is locked while in use, so that a folder left by a killed service can be recognised and removed. Each worker has one
file for its counters, one for its histograms and one for each kind of gauge. The counters and histograms of a dead
worker must still count: its two files are merged into two files for all dead workers.
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
"""The variable by which prometheus_client finds the folder at its first import."""
LOCK = "lock"
READERS = "readers"
"""Lock file: shared while files of the folder are read, exclusive while they are merged."""
COUNTS = ("counter", "histogram")
DEAD = "dead"
PREFIX = "nextitem-metrics-"


@contextlib.contextmanager
def make_metrics_folder() -> Iterator[Path]:
    """Make a new folder, and remove it at the end. First removes folders left behind by a kill -9."""
    remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        with (folder / "unlocked").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "unlocked").rename(folder / LOCK)  # it is never visible without its lock
            yield folder


def remove_abandoned(parent: Path) -> None:
    """Remove the metrics folders of this user's dead services, whose locks the kernel has released.

    Process ids would not identify them: other containers may share the parent folder but not the ids.
    """
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, in use, or gone already
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                with (folder / LOCK).open("rb") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)


@contextlib.contextmanager
def lock_readers(folder: Path, *, alone: bool) -> Iterator[None]:
    """Hold the lock on the files: shared to read them, or with `alone` exclusively to merge them.

    The exclusive lock never waits, since a reader may hang: raises BlockingIOError while there is one.
    """
    with (folder / READERS).open("ab") as readers:  # created again if a cleaner of temporary folders removed it
        fcntl.flock(readers, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
        yield


def merge_dead_workers(alive: Collection[int], folder: Path) -> None:
    """Drop the gauges of dead workers, and merge their counters and histograms."""
    owners = {file.stem.rpartition("_")[2] for file in folder.glob("*.db")} - {DEAD}
    for pid in map(int, owners):
        if pid not in alive:
            _merge_dead_worker(pid, folder)


def _merge_dead_worker(pid: int, folder: Path) -> None:
    # Imported late: prometheus_client reads the environment at its first import.
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
            except (struct.error, RuntimeError, ValueError):  # incomplete: the worker died at its start
                values = []
            total = MmapedDict(str(folder / f"{kind}_{DEAD}.db"))  # type: ignore[no-untyped-call]
            for key, value, _, _ in values:
                total.write_value(key, total.read_value(key)[0] + value, 0.0)  # type: ignore[no-untyped-call]
            total.close()  # type: ignore[no-untyped-call]
            file.unlink()

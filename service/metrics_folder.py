"""The folder through which several workers share their metrics. It is locked, so that a dead service's can be told."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCK = "lock"
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

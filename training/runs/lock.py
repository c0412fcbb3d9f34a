"""Who may write to a folder of runs: one process at a time, by a lock that the kernel lets go of when it ends."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from model.contract import atomic_files
from training.errors import RunError

FIT = "fit.lock"
"""In a run: held by the one training that writes to it."""


@contextlib.contextmanager
def hold_lock(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file; its folder is made where there is none. Raises RunError where another `what` holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(atomic_files.hold_lock(path, patience_s=0))
        except BlockingIOError as error:
            raise RunError(f"another {what} is under way: it holds {path}") from error
        yield

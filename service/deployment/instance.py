"""The instance that a worker belongs to: its name, and the private folder that several workers share."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Self

from service.deployment.probe import ProbeBook
from service.telemetry.multiprocess import METRICS_FOLDER, PREFIX

_TOLD = "look"
"""Written whenever somebody told one worker to look: the others see its time."""


class Instance:
    """One start of the service, with all of its workers."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is shared by several workers; None for a worker that is alone."""
        self.folder = folder
        self.name = secrets.token_hex(4) if folder is None else folder.name.removeprefix(PREFIX)
        self.book = ProbeBook(folder)

    @classmethod
    def from_environment(cls) -> Self:
        """The instance of this process. Workers share the folder that their metrics are in."""
        folder = os.environ.get(METRICS_FOLDER)
        return cls(None if folder is None else Path(folder))

    @property
    def has_supervisor(self) -> bool:
        """Whether there are several workers, and a process that replaces them."""
        return self.folder is not None

    @property
    def worker(self) -> str:
        """This process among all workers of all instances."""
        return f"{self.name}:{os.getpid()}"

    def tell(self) -> None:
        """Have all workers look at the deployment."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                (self.folder / _TOLD).write_bytes(b"")

    def last_told_ns(self) -> int:
        """When somebody was last told to look, 0 if nobody was."""
        if self.folder is None:
            return 0
        try:
            return (self.folder / _TOLD).stat().st_mtime_ns
        except OSError:
            return 0


def is_running(pid: int) -> bool:
    """Whether a process of this machine runs, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True

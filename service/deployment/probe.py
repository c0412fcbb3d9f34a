"""Tries a bundle in a short-lived process: a graph that crashes, hangs or eats the memory never meets one that answers.

The workers of an instance share what was found in a private folder. One of them probes and loads at a time.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from model.contract.atomic_files import write_whole
from model.contract.bundle import OpenBundle
from service.errors import ModelRefused
from service.settings import Settings
from service.system.memory import find_memory_bytes

TIME_LIMIT_S: Final = 600.0
MEMORY_BASE_BYTES: Final = 1 << 30
MEMORY_SHARE: Final = 0.9
"""Highest share of the machine's or the container's memory for a probe."""
MOST_DOUBLINGS: Final = 6
MOST_KEPT: Final = 64
"""Verdicts that a worker without a folder keeps."""
_LOAD_LOCK: Final = "load.lock"
_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from service.deployment.probe_process import main; main()"
)
"""The probe finds its modules where this process does."""


@dataclass(frozen=True)
class Verdict:
    """What a probe found. `code` is None for a bundle that can be used."""

    code: str | None
    sentence: str
    provider: str = ""
    held_s: float | None = None
    """The longest time that the load held the GIL, None if it was not measured."""
    files: str = ""
    """State of the bundle's files when it was tried."""
    at_s: float = 0.0
    """When it was tried, by the clock of all processes of this machine (time.monotonic)."""

    def require(self) -> None:
        """Raise ModelRefused unless the bundle can be used."""
        if self.code is not None:
            raise ModelRefused(self.code, self.sentence)


def probe(
    settings: Settings, bundle: OpenBundle, *, measures: bool = False, time_limit_s: float = TIME_LIMIT_S
) -> Verdict:
    """Load a bundle in a process of its own, as a worker would. With `measures`, also see how long it holds the GIL."""
    request = {
        "parent": os.getpid(),
        "folder": str(bundle.folder),
        "manifest": bundle.manifest.to_bytes().decode(),
        "digest": bundle.digest,
        "descriptors": dict(bundle.descriptors),
        "measures": measures,
        "memory_bytes": _limit_memory(settings, bundle),
        "options": {
            "provider": settings.provider,
            "threads": settings.threads,
            "max_batch": settings.max_batch,
            "cuda_graphs": settings.cuda_graphs,
        },
    }
    files, at_s = describe_files(bundle), time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, with our own words
            [sys.executable, "-P", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=tuple(bundle.descriptors.values()),
        )
    except OSError as error:  # no memory, processes or files left: the machine's fault, and tried again soon
        why = f"a process that tries the bundle could not be started: {error.strerror}"
        return Verdict("memory", why, files=files, at_s=at_s)
    try:
        output, complaint = process.communicate(json.dumps(request).encode(), timeout=time_limit_s)
    except subprocess.TimeoutExpired:
        return Verdict("timeout", f"trying the bundle took longer than {time_limit_s:.0f} s", files=files, at_s=at_s)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
    try:
        return Verdict(**json.loads(output.splitlines()[-1]), files=files, at_s=at_s)
    except (ValueError, IndexError, TypeError):
        return _describe_end(process.returncode, complaint, files=files, at_s=at_s)


def _describe_end(status: int, complaint: bytes, *, files: str, at_s: float) -> Verdict:
    """The verdict on a bundle whose probe ended without one."""
    if b"bad_alloc" in complaint or b"MemoryError" in complaint:
        return Verdict("memory", "the process that tried the bundle ran out of memory", files=files, at_s=at_s)
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    return Verdict("crashed", f"the process that tried to load the bundle ended with {how}", files=files, at_s=at_s)


def _limit_memory(settings: Settings, bundle: OpenBundle) -> int:
    """A generous limit in bytes: files, read and parsed and held by the engine, and the scores of the largest batch."""
    size = sum(file.bytes for file in bundle.manifest.files.values())
    scores = 4 * settings.max_batch * bundle.manifest.item_count
    return min(int(MEMORY_SHARE * find_memory_bytes()), MEMORY_BASE_BYTES + 8 * size + 8 * scores)


def check_sizes(bundle: OpenBundle) -> None:
    """Raise ModelRefused if a file has another size than the manifest says: half copied, most likely."""
    for name, file in bundle.manifest.files.items():
        size = os.fstat(bundle.descriptors[name]).st_size
        if size != file.bytes:
            raise ModelRefused("corrupt", f"{name} has {size} bytes, the manifest says {file.bytes}")


def describe_files(bundle: OpenBundle) -> str:
    """Digest of the manifest, and number, size and time of each file: another text if any was replaced or written."""
    states = []
    for name, descriptor in sorted(bundle.descriptors.items()):
        state = os.fstat(descriptor)
        states.append(f"{name}:{state.st_ino}:{state.st_size}:{state.st_mtime_ns}")
    return f"{bundle.digest} {' '.join(states)}"


class ProbeBook:
    """The verdicts that the workers of an instance share, in a private folder; without one, those of this worker."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._own: dict[str, Verdict] = {}
        """Without a folder: verdicts by digest."""

    @contextlib.contextmanager
    def take_turn(self) -> Iterator[None]:
        """Wait for the turn to probe and load: one worker at a time. The kernel ends the turn of one that dies."""
        if self._folder is None:
            yield
            return
        with (self._folder / _LOAD_LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def find(self, bundle: OpenBundle, *, since_s: float, measured: bool = False) -> Verdict | None:
        """A verdict that still holds: a good one on these files, or a bad one that was found after `since_s`.

        With `measured`, a good one must say how long the load held the GIL.
        """
        verdict = self._read(bundle)
        if verdict is None or verdict.files != describe_files(bundle):
            return None
        if verdict.code is None:
            return None if measured and verdict.held_s is None else verdict
        return verdict if verdict.at_s > since_s else None

    def note(self, bundle: OpenBundle, verdict: Verdict) -> None:
        """Share a verdict. What cannot be written is found out again."""
        if self._folder is None:
            if len(self._own) >= MOST_KEPT:
                self._own.clear()
            self._own[bundle.digest] = verdict
            return
        with contextlib.suppress(OSError):
            write_whole(self._locate(self._folder, bundle), json.dumps(asdict(verdict)).encode())

    def claim(self, name: str, *, every_s: float) -> bool:
        """Whether this worker is the first to ask for something within `every_s`; then it should do it for all.

        The time doubles with each claim, up to 64-fold: what asking did not bring about it hardly will.
        """
        if self._folder is None:
            return True
        path = self._folder / f"{name}.claim"  # a byte for each claim
        with (self._folder / "claims.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                last = path.stat()
                if time.time() - last.st_mtime < every_s * 2 ** min(last.st_size - 1, MOST_DOUBLINGS):
                    return False
            with path.open("ab") as claims:
                claims.write(b".")
        return True

    def _read(self, bundle: OpenBundle) -> Verdict | None:
        if self._folder is None:
            return self._own.get(bundle.digest)
        try:
            known: dict[str, Any] = json.loads(self._locate(self._folder, bundle).read_bytes())
            return Verdict(**known)
        except (OSError, ValueError, TypeError):
            return None

    @staticmethod
    def _locate(folder: Path, bundle: OpenBundle) -> Path:
        return folder / f"{bundle.digest}.verdict"

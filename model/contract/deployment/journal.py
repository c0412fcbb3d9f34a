"""journal.jsonl: every change of a deployment in one line, each with the digest of the line before it."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from model.contract.deployment.document import Deployment, DeploymentMalformed

JOURNAL = "journal.jsonl"
LINE_MAX_BYTES = 4096
BEFORE_FIRST = "0" * 64
"""The digest that the first line names as the one before it."""

Entry = Mapping[str, Any]
"""A line: at, generation, by, action, from, to, why, evidence (optional), prev."""


def append(root: Path, entry: Entry) -> None:
    """Append a line and have it on disk. The caller holds the lock. Raises OSError and DeploymentMalformed."""
    path = root / JOURNAL
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        last = _last_line(descriptor, size)
        if last is not None and not last.endswith(b"\n"):  # a crash cut it: it never was
            cut = size - len(last)
            os.ftruncate(descriptor, cut)
            last = _last_line(descriptor, cut)
        line = _encode({**entry, "prev": BEFORE_FIRST if last is None else _digest(last)})
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_journal(root: Path) -> Iterator[Entry]:
    """Yield the entries, oldest first. A last line that a crash cut short is skipped. Raises DeploymentMalformed."""
    for number, line in enumerate(_lines(root), start=1):
        yield _decode(line, number)


def verify_journal(root: Path) -> str | None:
    """Check that every line names the digest of the one before it, and the last one the deployment's generation.

    Says what is wrong, or None.
    """
    before, generation = BEFORE_FIRST, 0
    try:
        for number, line in enumerate(_lines(root), start=1):
            entry = _decode(line, number)
            if entry.get("prev") != before:
                return f"line {number} does not follow the line before it: one of them was changed or removed"
            if entry.get("action") != "undone" and entry["generation"] <= generation:
                return f"line {number} has generation {entry['generation']} after {generation}"
            generation = entry["generation"] if entry.get("action") != "undone" else entry["generation"] - 1
            before = _digest(line)
    except DeploymentMalformed as error:
        return str(error)
    return None


def last_entry(root: Path) -> Entry | None:
    """The newest entry, or None. Raises DeploymentMalformed."""
    last = None
    for last in read_journal(root):  # noqa: B007 - the last one is wanted
        pass
    return last


def describe(before: Deployment, after: Deployment) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a change changed: the fields' values before and after."""
    names = ("champion", "candidate", "mode", "share", "previous")
    changed = [name for name in names if getattr(before, name) != getattr(after, name)]
    if before.trial.auto != after.trial.auto:
        return (
            {**{name: getattr(before, name) for name in changed}, "auto": before.trial.auto},
            {**{name: getattr(after, name) for name in changed}, "auto": after.trial.auto},
        )
    return {name: getattr(before, name) for name in changed}, {name: getattr(after, name) for name in changed}


def _encode(entry: Entry) -> bytes:
    line = json.dumps(entry, allow_nan=False).encode() + b"\n"
    if len(line) > LINE_MAX_BYTES:
        kept = {**entry, "evidence": "too long for a line"} if "evidence" in entry else {**entry}
        kept["why"] = str(kept.get("why", ""))[:500]
        line = json.dumps(kept, allow_nan=False).encode() + b"\n"
    if len(line) > LINE_MAX_BYTES:
        raise DeploymentMalformed(f"a journal line has at most {LINE_MAX_BYTES} bytes")
    return line


def _decode(line: bytes, number: int) -> Entry:
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DeploymentMalformed(f"{JOURNAL}: line {number} is not JSON") from error
    if not isinstance(entry, dict) or type(entry.get("generation")) is not int:
        raise DeploymentMalformed(f"{JOURNAL}: line {number} is not an object with a generation")
    return entry


def _lines(root: Path) -> Iterator[bytes]:
    try:
        with (root / JOURNAL).open("rb") as journal:
            for line in journal:
                if line.endswith(b"\n"):
                    yield line
    except FileNotFoundError:
        return
    except OSError as error:
        raise DeploymentMalformed(f"{root / JOURNAL} cannot be read ({error.strerror})") from error


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _last_line(descriptor: int, size: int) -> bytes | None:
    """The last line among `size` bytes, whole or cut short; None for an empty file."""
    tail = os.pread(descriptor, min(size, 4 * LINE_MAX_BYTES), max(0, size - 4 * LINE_MAX_BYTES))
    return tail.splitlines(keepends=True)[-1] if tail else None

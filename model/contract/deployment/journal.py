"""journal.jsonl: every change of a deployment in one line, each with the digest of the line before it."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from model.contract.atomic_files import sync_folder
from model.contract.deployment.document import Deployment, DeploymentMalformed, TrialTerms, read_deployment
from model.contract.manifest import BundleError, is_count

JOURNAL = "journal.jsonl"
LINE_MAX_BYTES = 4096
BEFORE_FIRST = "0" * 64
"""The digest that the first line names as the one before it."""
UNDONE = "undone"
"""The action of a line that takes back the one before it, and has its generation."""

Entry = Mapping[str, Any]
"""A line: at, generation, by, action, from, to, why, evidence (optional), prev."""


def append(root: Path, entry: Entry) -> None:
    """Append a line and have it on disk, whole or not at all. The caller holds the lock.

    Raises OSError, and DeploymentMalformed for what no line can hold.
    """
    path = root / JOURNAL
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        last = _read_last(descriptor, size)
        if last and not last.endswith(b"\n"):  # a crash cut it: it never was
            line = _encode(entry, _read_last(descriptor, size - len(last)))
            size -= len(last)
            os.ftruncate(descriptor, size)
        else:
            line = _encode(entry, last)
        if os.write(descriptor, line) != len(line):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        sync_folder(root)


def read_journal(root: Path) -> Iterator[Entry]:
    """Yield the entries, oldest first. A last line that a crash cut short is skipped. Raises DeploymentMalformed."""
    for number, line in enumerate(_lines(root), start=1):
        yield _decode(line, number)


def verify_journal(root: Path) -> str | None:
    """Check that every line names the digest of the one before it, and that the deployment's generation is in them.

    Says what is wrong, or None. A last line of a later generation than the deployment's is right: its writer ended
    before the deployment changed, which the next one notes.
    """
    before, generation = BEFORE_FIRST, 0
    try:
        stands = read_deployment(root).generation  # before the lines: whoever writes meanwhile writes a line first
    except DeploymentMalformed as error:
        return str(error)
    except BundleError:
        stands = 0  # no deployment.json, and no champion either
    try:
        for number, line in enumerate(_lines(root), start=1):
            entry = _decode(line, number)
            if entry.get("prev") != before:
                return f"line {number} does not follow the line before it: one of them was changed or removed"
            undone = entry.get("action") == UNDONE
            if entry["generation"] != generation if undone else entry["generation"] <= generation:
                return f"line {number} has generation {entry['generation']} after {generation}"
            before, generation = _digest(line), entry["generation"]
    except DeploymentMalformed as error:
        return str(error)
    if stands > generation:
        return f"the deployment is of generation {stands}, the last line of {generation}: lines are missing at the end"
    return None


def last_entry(root: Path) -> Entry | None:
    """The newest whole entry, or None. Raises DeploymentMalformed."""
    try:
        descriptor = os.open(root / JOURNAL, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DeploymentMalformed(f"{root / JOURNAL} cannot be read ({error.strerror})") from error
    try:
        size = os.fstat(descriptor).st_size
        last = _read_last(descriptor, size)
        if last and not last.endswith(b"\n"):
            last = _read_last(descriptor, size - len(last))
    finally:
        os.close(descriptor)
    return _decode(last, None) if last else None


def describe(before: Deployment, after: Deployment) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a change changed: the values of fields and of the trial's terms, before and after."""
    names = ("champion", "candidate", "mode", "share", "previous")
    changed = [name for name in names if getattr(before, name) != getattr(after, name)]
    terms = [one.name for one in fields(TrialTerms) if one.name != "others"]
    new_terms = [name for name in terms if getattr(before.trial, name) != getattr(after.trial, name)]
    old, new = (
        {
            **{name: getattr(deployment, name) for name in changed},
            **{name: getattr(deployment.trial, name) for name in new_terms},
        }
        for deployment in (before, after)
    )
    return old, new


def _encode(entry: Entry, last: bytes) -> bytes:
    """The line of an entry after the line `last`. Evidence that makes it too long is left out, and that is said."""
    chained = {**entry, "prev": _digest(last) if last else BEFORE_FIRST}
    shortened = {**chained, "evidence": "too long for a line"} if "evidence" in chained else chained
    try:
        for form in (chained, shortened):
            line = json.dumps(form, allow_nan=False).encode() + b"\n"
            if len(line) <= LINE_MAX_BYTES:
                return line
    except (TypeError, ValueError, RecursionError) as error:
        raise DeploymentMalformed("a journal line cannot hold this evidence as JSON") from error
    raise DeploymentMalformed(f"a journal line has at most {LINE_MAX_BYTES} bytes")


def _decode(line: bytes, number: int | None) -> Entry:
    where = "the last line" if number is None else f"line {number}"
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DeploymentMalformed(f"{JOURNAL}: {where} is not JSON") from error
    if not isinstance(entry, dict) or not is_count(entry.get("generation")):
        raise DeploymentMalformed(f"{JOURNAL}: {where} is not an object with a generation")
    return entry


def _lines(root: Path) -> Iterator[bytes]:
    """The whole lines, oldest first. Raises DeploymentMalformed, also for a line that no writer of ours made."""
    try:
        with (root / JOURNAL).open("rb") as journal:
            while line := journal.readline(LINE_MAX_BYTES + 1):
                if line.endswith(b"\n"):
                    yield line
                elif len(line) > LINE_MAX_BYTES:
                    raise DeploymentMalformed(f"{JOURNAL}: a line has more than {LINE_MAX_BYTES} bytes")
    except FileNotFoundError:
        return
    except OSError as error:
        raise DeploymentMalformed(f"{root / JOURNAL} cannot be read ({error.strerror})") from error


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _read_last(descriptor: int, size: int) -> bytes:
    """The last line among `size` bytes, whole or cut short; empty for an empty file. Raises DeploymentMalformed."""
    start = max(0, size - 2 * LINE_MAX_BYTES)
    tail = os.pread(descriptor, size - start, start)
    begin = tail.rfind(b"\n", 0, -1) + 1
    if begin == 0 and start > 0:
        raise DeploymentMalformed(f"{JOURNAL}: a line has more than {LINE_MAX_BYTES} bytes")
    return tail[begin:]

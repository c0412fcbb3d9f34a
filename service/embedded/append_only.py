"""Checks and repairs the append-only files of a store on disk.

A manifest names a base snapshot and the files of commands that follow it. The server's binary acts as the checker when
it is started under the checker's name. Each file is checked by itself: given a manifest, the checker of Valkey 9
reports every base as damaged, because it knows only the magic bytes of Redis snapshots.
"""

import contextlib
import mmap
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import orjson

from model.contract.atomic_files import sync_folder, write_whole
from service.embedded.data_folder import APPEND_ONLY_FOLDER, MANIFEST, open_private
from service.embedded.valkey import find_binary
from service.errors import StartFailed

CHUNK_BYTES: Final = 1 << 20
SAVED: Final = "events.jsonl"
"""The file with events from after the damage, in the folder with the original files."""

_FILE_NAME = re.compile(r"appendonly\.aof\.(\d+)\.(base|incr)\.(?:aof|rdb)")
_EVENT: Final = re.compile(
    rb"\r\n\$4\r\nXADD\r\n\$\d+\r\nnextitem:log:\{\d\d\}\r\n\$\d+\r\n\d+-\d+\r\n\$1\r\ne\r\n\$(\d{1,9})\r\n"
)
"""The start of a command that adds an event to the log. No record contains it: JSON has no bare line ends."""
_END_OF_CALL: Final = b"\r\n$4\r\nEXEC\r\n"

State = Literal["whole", "torn", "damaged", "missing", "left out"]
"""torn: ends in the middle of a command, as after a power cut. left out: whole, but follows a damaged file."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Part:
    """One file that the manifest names."""

    name: str
    number: int
    is_base: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one file."""

    part: Part
    state: State
    size: int = 0
    """In bytes."""
    good_bytes: int = 0
    """How many bytes, from the start, can be kept."""
    lost_events: int = 0
    """How many events can be read from the remaining bytes."""

    def describe(self) -> str:
        """A sentence for the operator, without its full stop."""
        name = self.part.name
        if self.state == "whole":
            return f"{name} is whole, {self.size} bytes"
        if self.state == "torn":
            return (
                f"{name} ends in the middle of a command at byte {self.good_bytes} of {self.size}, as after a power "
                "cut: that command was not acknowledged, and the store drops it when it starts"
            )
        if self.part.is_base:
            how = "is missing" if self.state == "missing" else "is damaged"
            return f"{name}, the base snapshot, {how} and cannot be repaired: restore a backup"
        if self.state == "missing":
            return f"{name} is missing: --fix continues without it and the files after it"
        if self.state == "left out":
            saved = f"saves its {self.lost_events} events"
            return f"{name} is whole but follows a damaged or missing file: --fix leaves it out and {saved}"
        return (
            f"{name} is damaged at byte {self.good_bytes} of {self.size}: --fix cuts it there "
            f"and saves {self.lost_events} events from after that byte"
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a store's files, in loading order."""

    findings: Sequence[Finding]
    manifest_fault: str | None = None
    """What is wrong with the manifest, if anything. The findings then cover all files found in the folder."""

    @property
    def sound(self) -> bool:
        """Whether a server can load all of these files."""
        return self.manifest_fault is None and all(finding.state in ("whole", "torn") for finding in self.findings)

    @property
    def repairable(self) -> bool:
        """Whether the base is whole, so that everything up to the first damage can be kept."""
        return all(finding.state == "whole" for finding in self.findings if finding.part.is_base)

    @property
    def lost_events(self) -> int:
        """How many events a repair cuts off. Events of a missing file are not counted."""
        return sum(finding.lost_events for finding in self.findings)


def read_manifest(text: str) -> list[Part]:
    """The files that a manifest names, in loading order. Raises ValueError."""
    parts = []
    for line in text.splitlines():
        words = line.split()
        pairs = dict(zip(words[::2], words[1::2], strict=True))
        if not {"file", "seq", "type"} <= pairs.keys() or Path(pairs["file"]).name != pairs["file"]:
            raise ValueError("no line of a manifest")
        if pairs["type"] != "h":  # history: replaced by a rewrite but not removed yet
            parts.append(Part(pairs["file"], int(pairs["seq"]), is_base=pairs["type"] == "b"))
    if not parts:
        raise ValueError("an empty manifest")
    return sorted(parts, key=lambda part: (not part.is_base, part.number))


def check(data_dir: Path, say: Say = lambda _: None) -> Report:
    """Check all files of a stopped store. Raises StartFailed if there is no store, and OSError."""
    folder = data_dir / APPEND_ONLY_FOLDER
    try:
        parts, fault = read_manifest((folder / MANIFEST).read_text()), None
    except (FileNotFoundError, ValueError) as error:
        parts = _find_parts(folder)
        if not parts:
            raise StartFailed(f"{data_dir} holds no store: give the --data-dir that the service uses") from error
        fault = f"{MANIFEST} is {'missing' if isinstance(error, FileNotFoundError) else 'damaged'}"
    findings: list[Finding] = []
    for part in parts:
        say(f"Checking {part.name}")
        finding = _check_part(folder, part, is_last=part is parts[-1])
        if any(before.state not in ("whole", "torn") for before in findings) and finding.state != "missing":
            finding = Finding(part, "left out", finding.size, 0, _count_events(folder / part.name, 0))
        findings.append(finding)
    return Report(findings, fault)


def repair(data_dir: Path, report: Report) -> Path:
    """Keep everything up to the first damage. Returns a folder with the original files and the later events (SAVED).

    Raises StartFailed if the base snapshot is not whole, and OSError; the files are then unchanged.
    """
    if not report.repairable:
        raise StartFailed("the base snapshot is damaged or missing, so nothing can be repaired: restore a backup")
    folder = data_dir / APPEND_ONLY_FOLDER
    aside = data_dir / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    try:
        shutil.copytree(folder, aside, copy_function=copy_private)
        if report.lost_events:
            _save_events(folder, report, aside / SAVED)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    aside.chmod(0o700)
    sync_folder(data_dir)
    kept = []
    for finding in report.findings:
        if finding.state in ("torn", "damaged"):
            cut(folder / finding.part.name, finding.good_bytes)
        if finding.state in ("whole", "torn", "damaged"):
            kept.append(finding.part)
    lines = (f"file {part.name} seq {part.number} type {'b' if part.is_base else 'i'}\n" for part in kept)
    write_whole(folder / MANIFEST, "".join(lines).encode(), mode=0o600)
    return aside


def _save_events(folder: Path, report: Report, saved: Path) -> None:
    """Write the events after the damage to a file, one a line, in the format of POST /events."""
    with open(saved, "xb", opener=open_private) as file:
        for finding in report.findings:
            if finding.lost_events:
                events = _read_events(folder / finding.part.name, finding.good_bytes)
                file.writelines(record + b"\n" for record in events)
        file.flush()
        os.fsync(file.fileno())


def cut(file: Path, size: int) -> None:
    """Truncate a file to its first `size` bytes and sync it."""
    with file.open("r+b") as opened:
        opened.truncate(size)
        os.fsync(opened.fileno())


def copy_private(source: str, target: str) -> None:
    """Copy a file so that no other user may read the copy, and sync it."""
    with Path(source).open("rb") as original, open(target, "xb", opener=open_private) as copy:
        shutil.copyfileobj(original, copy, CHUNK_BYTES)
        copy.flush()
        os.fsync(copy.fileno())


def _find_parts(folder: Path) -> list[Part]:
    """The files found in a folder without a valid manifest. Raises StartFailed if there are several bases."""
    named = ((_FILE_NAME.fullmatch(path.name), path) for path in folder.glob("*"))
    parts = [Part(path.name, int(name[1]), is_base=name[2] == "base") for name, path in named if name]
    if sum(part.is_base for part in parts) > 1:
        raise StartFailed(
            f"the manifest in {folder} is missing, and which of its snapshots is current is unknown: restore a backup"
        )
    return sorted(parts, key=lambda part: (not part.is_base, part.number))


def _check_part(folder: Path, part: Part, *, is_last: bool) -> Finding:
    file = folder / part.name
    if not file.exists():
        return Finding(part, "missing")
    size = file.stat().st_size
    with file.open("rb") as opened:
        is_snapshot = opened.read(6) in (b"REDIS0", b"VALKEY")
    if is_snapshot or (part.is_base and file.suffix == ".rdb"):
        status, _ = _run_tool("valkey-check-rdb", file)
        return Finding(part, "whole" if status == 0 else "damaged", size, size if status == 0 else 0)
    status, words = _run_tool("valkey-check-aof", file)
    if status == 0:
        return Finding(part, "whole", size, size)
    found = re.search(r"ok_up_to=(\d+)", words)
    if found is None:
        raise StartFailed(f"{file} cannot be checked: {words.strip()[-200:]}")
    good_bytes = int(found[1])
    # Every write of the service ends with EXEC. Without an EXEC after this point, nothing acknowledged follows it.
    is_torn = is_last and not part.is_base and not _ends_a_call(file, good_bytes) and "format error" not in words
    if is_torn:
        return Finding(part, "torn", size, good_bytes)
    return Finding(part, "damaged", size, good_bytes, _count_events(file, good_bytes))


def _count_events(file: Path, start: int) -> int:
    return sum(1 for _ in _read_events(file, start))


def _run_tool(name: str, file: Path) -> tuple[int, str]:
    """Run the server's binary under the name of a tool. Returns its status and output."""
    ended = subprocess.run(  # noqa: S603 -- the command is ours
        [name, str(file)],
        executable=find_binary(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return ended.returncode, ended.stdout.decode(errors="replace")


def _read_events(file: Path, start: int) -> Iterator[bytes]:
    """The records of all readable events of a file from byte `start` on, skipping damage."""
    with file.open("rb") as opened:
        if os.fstat(opened.fileno()).st_size <= start:
            return
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for found in _EVENT.finditer(content, start):
                record = content[found.end() : found.end() + int(found[1])]
                with contextlib.suppress(orjson.JSONDecodeError):  # a damaged record
                    orjson.loads(record)
                    yield record


def _ends_a_call(file: Path, start: int) -> bool:
    """Whether any transaction ends after byte `start` of a file."""
    with file.open("rb") as opened:
        if os.fstat(opened.fileno()).st_size <= start:
            return False
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_END_OF_CALL, start) >= 0

"""The archive's folder: segments with the events that left the store's log (model/contract/event_archive.py).

`<partition>.sha256` lists the segments for `sha256sum -c`. `<partition>.erased.json` lists the erasures that the
segments went through. Files are written atomically and private, but that the folder's group may be let in to read the
segments: a trainer may be another user.

Small neighbouring segments are merged into one. The merged segment is on disk before its sources are deleted. So a
segment whose ids lie within another segment's is left from an interrupted merge, and is a duplicate.
"""

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import orjson

from model.contract.atomic_files import hold_lock, write_whole
from model.contract.event_archive import (
    EVENT_KEY,
    LOCK,
    EntryId,
    Segment,
    group_merged,
    name_segment,
    pack_lines,
    pack_records,
    parse_segment,
    read_lines,
)
from service.archive.merge_plan import plan_merges
from service.archive.tombstones import Erased, drop_erased
from service.errors import StartFailed

STORE = "store"
"""Names the store whose log is here."""
IDENTITY = "id"
"""Names the folder: the store remembers it, so that its log goes to one folder only."""

_PARTIAL = re.compile(r"\..*\.partial")
_MODE: Final = 0o600
_READ_BY_GROUP: Final = 0o040


class SegmentDamaged(StartFailed):
    """A segment cannot be read: nobody knows what it holds."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is damaged: restore it from a backup, or remove it from the folder")
        self.path = path


class FolderRefused(StartFailed):
    """The folder is not the one of this store's archive."""


class FolderBusy(FolderRefused):
    """Another process archives to the folder."""


class Archive:
    """The folder of segments; one process may write to it at a time. Use it as a context. Raises StartFailed."""

    def __init__(self, folder: Path, *, lock_wait_s: float = 0.0, group_access: bool = False) -> None:
        """`lock_wait_s` is how long to wait while another process ends."""
        self._folder = folder
        self._lock_wait_s = lock_wait_s
        self._folder_mode = 0o750 if group_access else 0o700
        self._segment_mode = _MODE | (_READ_BY_GROUP if group_access else 0)
        self._held = contextlib.ExitStack()
        """The lock."""
        self._segments: dict[int, list[Segment]] = {}
        """By partition, in the order of their ids."""
        self._digests: defaultdict[int, dict[str, str]] = defaultdict(dict)
        """Of segments that were written and are not listed yet."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.enter_context(hold_lock(self._folder / LOCK, patience_s=self._lock_wait_s, mode=_MODE))
                if self._folder.stat().st_uid == os.geteuid():  # else it is for its owner to say who may look
                    self._folder.chmod(self._folder_mode)
            except BlockingIOError as error:
                raise FolderBusy(f"another process archives to {self._folder}: run one archiver per folder") from error
            except OSError as error:
                raise StartFailed(f"the archive cannot use {self._folder}: {error.strerror}") from error
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._folder

    @property
    def identity(self) -> str:
        """The folder's own name, which a copy of the folder has, too."""
        file = self._folder / IDENTITY
        if not file.exists():
            write_whole(file, f"{secrets.token_hex(16)}\n".encode(), mode=_MODE)
        return file.read_text().strip()

    @property
    def store(self) -> str | None:
        """The name of the store whose log is here, None while nobody's is."""
        file = self._folder / STORE
        return file.read_text().strip() if file.exists() else None

    def require_store(self, store: str) -> None:
        """Raise FolderRefused when the folder holds the log of another store: its ids would pass for archived."""
        if self.store not in (None, store):
            raise FolderRefused(
                f"{self._folder} is the archive of another store: give this store a folder of its own. If this is "
                "the same store after it was emptied, run `nextitem-serve archive --take-over` once"
            )

    def claim_for(self, store: str) -> None:
        """Tie the folder to a store. Raises FolderRefused when it is another's."""
        self.require_store(store)
        if self.store is None:
            write_whole(self._folder / STORE, f"{store}\n".encode(), mode=_MODE)

    def refresh(self) -> None:
        """List the folder, once for a whole run, and delete what killed processes left."""
        found: list[Segment] = []
        for path in self._folder.iterdir():
            if segment := parse_segment(path):
                self._set_mode(path)
                found.append(segment)
            elif _PARTIAL.fullmatch(path.name):
                path.unlink()
        self._segments = {}
        for segment, inner in group_merged(found).items():
            self._segments.setdefault(segment.partition, []).append(segment)
            for part in inner:
                self._absorb(part, segment)

    def _set_mode(self, path: Path) -> None:
        """Let the group in to a segment that is there, or out, as was said this time."""
        found = path.stat()
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != self._segment_mode:
            path.chmod(self._segment_mode)

    def _absorb(self, part: Segment, whole: Segment) -> None:
        """Delete a segment that lies within another, which first gets the records that it lacks.

        An interrupted merge left the part, or somebody put it back. If one of both is damaged, the part stays.
        """
        try:
            records = _unpack(whole.path)
            held = set(records)
            lacking = [record for record in _unpack(part.path) if record not in held]
        except SegmentDamaged:
            return
        if lacking:
            self._reset_erasures(whole.partition)  # they may be from before an erasure
            self._drop_checksums(whole.partition)
            self._put(whole, pack_records([*records, *lacking]))
        part.path.unlink()

    def find_end(self, partition: int) -> EntryId | None:
        """The last entry id that is archived, None without any."""
        segments = self._segments.get(partition)
        return segments[-1].last if segments else None

    def find_missing(self, partition: int, start: EntryId, records: Sequence[bytes]) -> list[bytes]:
        """The records that no readable segment holds, of those that reach the entry id `start` or later."""
        missing = {_identify(record): record for record in records}
        for segment in self._segments.get(partition, []):
            if missing and segment.last >= start:
                try:
                    for record in _unpack(segment.path):
                        missing.pop(_identify(record), None)
                except SegmentDamaged:
                    continue  # readers of the archive take an event that is archived twice for one
        return list(missing.values())

    def write(self, partition: int, first: EntryId, last: EntryId, records: Sequence[bytes]) -> None:
        """Add a segment after all others. It is on disk when this returns. `write_checksums` lists it."""
        segment = name_segment(self._folder, partition, first, last)
        self._put(segment, pack_records(records))
        self._segments.setdefault(partition, []).append(segment)

    def write_checksums(self, partition: int) -> None:
        """Write the list of the segments' SHA-256 digests, if it has changed."""
        file = self._folder / f"{partition:02d}.sha256"
        listed = _read_digests(file)
        known = {**listed, **self._digests.pop(partition, {})}
        digests = {
            segment.path.name: digest
            for segment in self._segments.get(partition, [])
            if (digest := known.get(segment.path.name) or _hash_file(segment.path))
        }
        if digests != listed:
            lines = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
            write_whole(file, lines.encode(), mode=_MODE)

    def erase(self, partition: int, erased: Erased) -> tuple[int, list[SegmentDamaged]]:
        """Remove erased users from the segments, once for each erasure.

        Returns the number of events removed, and the damaged segments. Erasures are not done while a segment is
        damaged; the next call tries them again.
        """
        file = self._folder / f"{partition:02d}.erased.json"
        done = _read_done(file)
        wanted = {digest: stone for digest, stone in erased.items() if done.get(digest) != stone.text}
        gone, damaged = 0, []
        for segment in self._segments.get(partition, []) if wanted else []:
            try:
                records = _unpack(segment.path)
            except SegmentDamaged as error:
                damaged.append(error)
                continue
            kept = drop_erased(records, wanted, [segment.last] * len(records))
            if len(kept) < len(records):
                self._drop_checksums(partition)
                self._put(segment, pack_records(kept))
                gone += len(records) - len(kept)
        served = {digest: stone.text for digest, stone in erased.items()}
        if damaged:
            self._reset_erasures(partition)
        elif served != done:
            write_whole(file, orjson.dumps(served), mode=_MODE)
        return gone, damaged

    def _reset_erasures(self, partition: int) -> None:
        """Have a partition's erasures done again: a file that somebody puts back may be from before any of them."""
        (self._folder / f"{partition:02d}.erased.json").unlink(missing_ok=True)

    def _drop_checksums(self, partition: int) -> None:
        """Delete a partition's list of digests before a segment changes: a wrong list is worse than none."""
        (self._folder / f"{partition:02d}.sha256").unlink(missing_ok=True)

    def merge(self, partition: int) -> list[SegmentDamaged]:
        """Merge small neighbouring segments. Returns the damaged ones, which stay as they are."""
        damaged = []
        segments = self._segments.get(partition, [])
        for group in plan_merges(segments):
            try:
                content = b"".join(_read(segment.path) for segment in group)
            except SegmentDamaged as error:
                damaged.append(error)
                self._reset_erasures(partition)
                continue
            merged = name_segment(self._folder, partition, group[0].first, group[-1].last)
            self._put(merged, pack_lines(content))
            place = segments.index(group[0])
            segments[place : place + len(group)] = [merged]
            for segment in group:
                segment.path.unlink()
        return damaged

    def _put(self, segment: Segment, packed: bytes) -> None:
        write_whole(segment.path, packed, mode=self._segment_mode)
        self._digests[segment.partition][segment.path.name] = hashlib.sha256(packed).hexdigest()


def _identify(record: bytes) -> tuple[str, ...]:
    event = orjson.loads(record)
    return tuple(event[name] for name in EVENT_KEY)


def _read(path: Path) -> bytes:
    """The lines of a segment. Raises SegmentDamaged."""
    try:
        return read_lines(path)
    except OSError as error:
        raise SegmentDamaged(path) from error


def _unpack(path: Path) -> list[bytes]:
    return _read(path).splitlines()


def _hash_file(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None  # damage is reported where its records are read


def _read_digests(file: Path) -> dict[str, str]:
    """The digests of a list, by name of the segment. Empty if the list cannot be parsed: it is then written anew."""
    try:
        return dict(line.split("  ")[::-1] for line in file.read_text().splitlines())
    except (OSError, ValueError):
        return {}


def _read_done(file: Path) -> dict[str, str]:
    """The tombstones that the segments went through. Empty if the file cannot be parsed: all are then done again."""
    try:
        done: dict[str, str | int] = orjson.loads(file.read_bytes())
        return {digest: f"{text:013d}" if isinstance(text, int) else text for digest, text in done.items()}
    except (OSError, ValueError, AttributeError):
        return {}

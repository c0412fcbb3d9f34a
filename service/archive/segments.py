"""The archive's files: segments of gzipped JSON lines with the events that left the store's log.

`<partition>-<first>-<last>.jsonl.gz` holds the records of the log from one entry id to another, in their order, one
JSON object a line with the names of POST /events. `<partition>.sha256` lists the segments for `sha256sum -c`.
`<partition>.erased.json` lists the erasures that the segments went through. Files are written atomically and private.

Small neighbouring segments are merged into one. The merged segment is on disk before its sources are deleted. So a
segment whose ids lie within another segment's is left from an interrupted merge, and is a duplicate.
"""

import fcntl
import gzip
import hashlib
import logging
import os
import re
import secrets
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import orjson

from model.contract.atomic_files import write_whole
from service.errors import StartFailed
from service.store.redis_keys import digest_user

LOCK = "archive.lock"
STORE = "store"
"""Names the store whose log is here."""
IDENTITY = "id"
"""Names the folder: the store remembers it, so that its log goes to one folder only."""

MERGED_BYTES: Final = 32 * 2**20
"""Records of one merged segment in bytes, at most: what is held in memory to make it."""
MERGED_AT: Final = 4
"""Fewer small neighbours are left alone: each merge writes all of them anew."""

_NAME = re.compile(r"(\d\d)-(\d+)-(\d+)-(\d+)-(\d+)\.jsonl\.gz")
_PARTIAL = re.compile(r"\..*\.partial")
_MODE: Final = 0o600
_POLL_S: Final = 0.1
_LEVEL: Final = 6
"""Of gzip: 9, its default in Python, takes twice the time for a hundredth of the size."""

_log = logging.getLogger(__name__)

EntryId = tuple[int, int]
"""Milliseconds and sequence number, as in an entry id of a stream."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What erase.lua keeps of an erasure."""

    until_ms: int
    """Events from before are erased."""
    entry_id: EntryId
    """So are all that the log held up to here."""
    event_ids: frozenset[str]
    """And these, by the digests of their ids."""
    text: str
    """As the store has it."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError when it is none. Before there were entry ids and event ids it was the time alone."""
        until_ms, *rest = text.split(" ")
        entry_id = parse_id(rest[0]) if rest else (0, 0)
        return cls(int(until_ms), entry_id, frozenset(word.partition(":")[2] for word in rest[1:]), text)

    def covers(self, timestamp_ms: int, event_id: str, entry_id: EntryId | None) -> bool:
        """Whether an event is erased; `entry_id` is one that its own is not above, None where none is known."""
        return (
            timestamp_ms <= self.until_ms
            or (entry_id is not None and entry_id <= self.entry_id)
            or (bool(self.event_ids) and digest_event(event_id) in self.event_ids)
        )


Erased = Mapping[str, Tombstone]
"""By the digest of the user's id."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the archive, by the first and the last entry id that it stands for."""

    first: EntryId
    last: EntryId
    path: Path


class SegmentDamaged(StartFailed):
    """A segment cannot be read: nobody knows what it holds."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is damaged: restore it from a backup, or remove it from the folder")
        self.path = path


class FolderRefused(StartFailed):
    """The folder is not the one of this store's archive."""


class Archive:
    """The folder of segments; one process may write to it at a time. Use it as a context. Raises StartFailed."""

    def __init__(self, folder: Path, *, lock_wait_s: float = 0.0) -> None:
        self._folder = folder
        self._lock_wait_s = lock_wait_s
        self._lock = -1
        self._segments: dict[int, list[Segment]] = {}
        """By partition, in the order of their ids."""
        self._digests: defaultdict[int, dict[str, str]] = defaultdict(dict)
        """Of segments that were written and are not listed yet."""

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, _MODE)
            self._take_lock()
            if self._folder.stat().st_uid == os.geteuid():  # else it is for its owner to say who may look
                self._folder.chmod(0o700)
        except OSError as error:
            self._unlock()
            if isinstance(error, BlockingIOError):
                raise FolderRefused(
                    f"another process archives to {self._folder}: run one archiver per folder"
                ) from error
            raise StartFailed(f"the archive cannot use {self._folder}: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unlock()

    def _take_lock(self) -> None:
        """Raises BlockingIOError when another process keeps the lock for `lock_wait_s`: one that ends, lets it go."""
        deadline_s = time.monotonic() + self._lock_wait_s
        while True:
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_POLL_S)

    def _unlock(self) -> None:
        if self._lock != -1:
            os.close(self._lock)
            self._lock = -1

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
        found: defaultdict[int, list[Segment]] = defaultdict(list)
        for path in self._folder.iterdir():
            if match := _NAME.fullmatch(path.name):
                partition, *ids = map(int, match.groups())
                found[partition].append(Segment((ids[0], ids[1]), (ids[2], ids[3]), path))
            elif _PARTIAL.fullmatch(path.name):
                path.unlink()
        self._segments = {partition: self._drop_merged(partition, segments) for partition, segments in found.items()}

    def _drop_merged(self, partition: int, segments: Collection[Segment]) -> list[Segment]:
        """Segments by their ids, without those whose ids another one has as well, whose files are deleted.

        An interrupted merge left them, or somebody put them back: then the other one takes what it lacks.
        """
        ordered: list[Segment] = []
        for segment in sorted(segments, key=lambda segment: (segment.first, (-segment.last[0], -segment.last[1]))):
            if not ordered or segment.last > ordered[-1].last:
                ordered.append(segment)
                continue
            whole = ordered[-1]
            try:
                records = _unpack(whole.path)
                held = set(records)
                lacking = [record for record in _unpack(segment.path) if record not in held]
            except SegmentDamaged:
                continue  # what the damaged one was made of is left where it is
            if lacking:
                self._reset_erasures(partition)  # it may be from before an erasure
                self._drop_checksums(partition)
                self._put(partition, whole, b"".join(record + b"\n" for record in (*records, *lacking)))
            segment.path.unlink()
        return ordered

    def find_end(self, partition: int) -> EntryId | None:
        """The last entry id that is archived, None without any."""
        segments = self._segments.get(partition)
        return segments[-1].last if segments else None

    def find_missing(self, partition: int, start: EntryId, records: Sequence[bytes]) -> list[bytes]:
        """Those of some records that no segment from an entry id on holds. What is in a damaged one is missing."""
        missing = {_identify(record): record for record in records}
        for segment in self._segments.get(partition, []):
            if missing and segment.last >= start:
                try:
                    for record in _unpack(segment.path):
                        missing.pop(_identify(record), None)
                except SegmentDamaged:
                    continue  # an event that is archived twice is one to whoever reads the archive
        return list(missing.values())

    def write(self, partition: int, first: EntryId, last: EntryId, records: Iterable[bytes]) -> None:
        """Add a segment behind all others; when this returns it is on disk. `seal` lists it."""
        segment = Segment(first, last, self._name(partition, first, last))
        self._put(partition, segment, b"".join(record + b"\n" for record in records))
        self._segments.setdefault(partition, []).append(segment)

    def write_checksums(self, partition: int) -> None:
        """List the digests of the segments as they are now."""
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
        """Take erased users out of the segments, once for each erasure: events that are gone, segments unreadable.

        While a segment is unreadable its erasures are not done, and are tried again by the next call.
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
                self._put(partition, segment, b"".join(record + b"\n" for record in kept))
                gone += len(records) - len(kept)
        served = {digest: stone.text for digest, stone in erased.items()}
        if damaged:
            self._reset_erasures(partition)
        elif served != done:
            write_whole(file, orjson.dumps(served), mode=_MODE)
        return gone, damaged

    def _reset_erasures(self, partition: int) -> None:
        """Have all erasures go through a partition again: a file that is put back may be from before any of them."""
        (self._folder / f"{partition:02d}.erased.json").unlink(missing_ok=True)

    def _drop_checksums(self, partition: int) -> None:
        """Forget the digests of a partition before one of its segments changes: a wrong list is worse than none."""
        (self._folder / f"{partition:02d}.sha256").unlink(missing_ok=True)

    def merge(self, partition: int) -> list[SegmentDamaged]:
        """Make few segments of many small neighbours. The segments that cannot be read, which stay as they are."""
        damaged = []
        segments = self._segments.get(partition, [])
        for group in _plan_merges(segments):
            try:
                content = b"".join(_read(segment.path) for segment in group)
            except SegmentDamaged as error:
                damaged.append(error)
                self._reset_erasures(partition)
                continue
            first, last = group[0].first, group[-1].last
            merged = Segment(first, last, self._name(partition, first, last))
            self._put(partition, merged, content)
            place = segments.index(group[0])
            segments[place : place + len(group)] = [merged]
            for segment in group:
                segment.path.unlink()
        return damaged

    def _name(self, partition: int, first: EntryId, last: EntryId) -> Path:
        return self._folder / f"{partition:02d}-{'-'.join(str(number) for number in (*first, *last))}.jsonl.gz"

    def _put(self, partition: int, segment: Segment, content: bytes) -> None:
        packed = _pack(content)
        write_whole(segment.path, packed, mode=_MODE)
        self._digests[partition][segment.path.name] = hashlib.sha256(packed).hexdigest()


def drop_erased(records: Sequence[bytes], erased: Erased, entry_ids: Sequence[EntryId]) -> list[bytes]:
    """The records without those of erased users from before their erasure. An entry id each, not below its own."""
    if not erased:
        return list(records)
    kept = []
    for record, entry_id in zip(records, entry_ids, strict=True):
        event = orjson.loads(record)
        stone = erased.get(digest_user(event["user_id"]))
        if stone is None or not stone.covers(event["timestamp"], event["event_id"], entry_id):
            kept.append(record)
    return kept


def digest_event(event_id: str) -> str:
    """What is kept of an erased event's id, as erase.lua makes it."""
    return hashlib.sha1(event_id.encode(), usedforsecurity=False).hexdigest()[:16]


def parse_id(entry_id: str) -> EntryId:
    """An entry id as the store writes it. Raises ValueError."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


def _identify(record: bytes) -> tuple[str, str]:
    event = orjson.loads(record)
    return event["user_id"], event["event_id"]


def _plan_merges(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Groups of neighbours to merge: of like sizes, so that no record is written anew often."""
    groups: list[tuple[list[Segment], int]] = []
    for segment in segments if len(segments) >= MERGED_AT else []:
        groups.append(([segment], _measure(segment.path)))
        while len(groups) > 1:
            (left, left_bytes), (right, right_bytes) = groups[-2:]
            if left_bytes > 2 * right_bytes or left_bytes + right_bytes > MERGED_BYTES:
                break
            groups[-2:] = [([*left, *right], left_bytes + right_bytes)]
    return [group for group, _ in groups if len(group) >= MERGED_AT]


def _measure(path: Path) -> int:
    """The bytes of a segment's records, by the last four of the file (RFC 1952). What cannot be read is too large."""
    try:
        with path.open("rb") as file:
            file.seek(-4, os.SEEK_END)
            return max(1, int.from_bytes(file.read(4), "little"))
    except OSError:
        return MERGED_BYTES + 1


def _read(path: Path) -> bytes:
    """Raises SegmentDamaged."""
    try:
        packed = path.read_bytes()
        if not packed:  # to gzip that is nothing, well packed; no segment is ever written so
            raise EOFError  # noqa: TRY301 - as gzip says it of what is cut short
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:  # gzip's own is an OSError
        raise SegmentDamaged(path) from error


def _unpack(path: Path) -> list[bytes]:
    return _read(path).splitlines()


def _pack(content: bytes) -> bytes:
    """Gzip without a date, so that the same records make the same file."""
    return gzip.compress(content, _LEVEL, mtime=0)


def _hash_file(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None  # it is damaged, which is said where its records are wanted


def _read_digests(file: Path) -> dict[str, str]:
    """By name; none where the list cannot be understood: then it is made anew."""
    try:
        return dict(line.split("  ")[::-1] for line in file.read_text().splitlines())
    except (OSError, ValueError):
        return {}


def _read_done(file: Path) -> dict[str, str]:
    """The tombstones that the segments went through; none where that cannot be understood: then all are wanted."""
    try:
        done: dict[str, str | int] = orjson.loads(file.read_bytes())
        return {digest: f"{text:013d}" if isinstance(text, int) else text for digest, text in done.items()}
    except (OSError, ValueError, AttributeError):
        return {}

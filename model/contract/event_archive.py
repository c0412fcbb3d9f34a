"""The format of the event archive: the service writes it, and trainings read it.

A segment `<partition>-<first>-<last>.jsonl.gz` holds the records of one partition of the store's log from one entry id
to another, in their order: gzipped, one JSON object a line, with the names of POST /events.

Two rules hold for readers. A segment whose ids lie within another's was merged into that one and is skipped: it may
still hold users who were erased since. And a (user_id, event_id) that stands in the archive twice is one event.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EntryId = tuple[int, int]
"""Milliseconds and sequence number, as in an entry id of the store's log."""

SUFFIX: Final = ".jsonl.gz"
PATTERN: Final = f"*{SUFFIX}"
"""Glob pattern of segments."""

LOCK: Final = "archive.lock"
"""Held by the archiver: a folder that has it is an archive, though it may hold no segment yet."""

COLUMNS: Final[Mapping[str, type]] = {
    "user_id": str,
    "event_id": str,
    "item_id": str,
    "timestamp": int,  # milliseconds since 1970
    "type": str,
    "value": float,
}
"""The names in a record that a training reads, and their types. Records hold recommendation_id and properties, too."""

EVENT_KEY: Final = ("user_id", "event_id")
"""What identifies an event."""

REQUIRED: Final = ("user_id", "event_id", "item_id", "timestamp")
"""The names that are in every record and never null."""

_NAME: Final = re.compile(r"(\d\d)-(\d+)-(\d+)-(\d+)-(\d+)\.jsonl\.gz")
_LEVEL: Final = 6
"""gzip's level. Level 9, Python's default, takes twice the time for one percent of the size."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the archive, with the first and the last entry id that it covers."""

    partition: int
    first: EntryId
    last: EntryId
    path: Path


def name_segment(folder: Path, partition: int, first: EntryId, last: EntryId) -> Segment:
    """The segment of a range of entry ids."""
    ids = "-".join(str(number) for number in (*first, *last))
    return Segment(partition, first, last, folder / f"{partition:02d}-{ids}{SUFFIX}")


def parse_segment(path: Path) -> Segment | None:
    """The segment that a path names, None if it names none."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    partition, *ids = map(int, match.groups())
    return Segment(partition, (ids[0], ids[1]), (ids[2], ids[3]), path)


def group_merged(segments: Iterable[Segment]) -> dict[Segment, list[Segment]]:
    """The segments to read, in the order of partition and ids, each with those whose ids lie within its own."""
    groups: dict[Segment, list[Segment]] = {}
    outer: Segment | None = None
    for segment in sorted(segments, key=_sort_outer_first):
        if outer is None or (segment.partition, segment.last) > (outer.partition, outer.last):
            outer = segment
            groups[outer] = []
        else:
            groups[outer].append(segment)
    return groups


def pack_records(records: Sequence[bytes]) -> bytes:
    """The bytes of a segment's file. The same records give the same bytes: the gzip header holds no date."""
    return pack_lines(b"".join(record + b"\n" for record in records))


def pack_lines(lines: bytes) -> bytes:
    """As `pack_records`, of records that each end with a newline."""
    return gzip.compress(lines, _LEVEL, mtime=0)


def read_lines(path: Path) -> bytes:
    """The records of a segment's file, each with a newline.

    Raises OSError: FileNotFoundError if there is no such file, gzip.BadGzipFile or another if it is damaged.
    """
    packed = path.read_bytes()
    if not packed:  # gzip takes it for a whole file without content, but no segment is ever written empty
        raise gzip.BadGzipFile("an empty file")
    try:
        return gzip.decompress(packed)
    except (EOFError, zlib.error) as error:
        raise gzip.BadGzipFile(str(error)) from error


def _sort_outer_first(segment: Segment) -> tuple[int, EntryId, EntryId]:
    """Sorts by partition and first id, and a segment before those that lie within it."""
    return segment.partition, segment.first, (-segment.last[0], -segment.last[1])

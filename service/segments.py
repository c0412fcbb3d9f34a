"""The archive: events that left the store's log, in files that any tool reads.

`<partition>-<first>-<last>.jsonl.gz` holds the records of the log from one entry id to another, in their order, one
JSON object a line with the names of POST /events. Names do not overlap, and the newest says how far its partition is
archived. `<partition>.sha256` lists the segments for `sha256sum -c`. A file is written whole or not at all.
"""

import fcntl
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from model.contract.files import write_whole
from service.errors import StartFailed

LOCK = "archive.lock"
STORE = "store"

_NAME = re.compile(r"(\d\d)-(\d+)-(\d+)-(\d+)-(\d+)\.jsonl\.gz")

EntryId = tuple[int, int]
"""Milliseconds and sequence number, as in an entry id of a stream."""

Erased = Mapping[str, int]
"""Digest of an erased user's id -> the time in ms up to which events are erased."""


class Archive:
    """The folder of segments; one process may write to it at a time. Use it as a context. Raises StartFailed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = -1

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise StartFailed(f"another process archives to {self._folder}: let one do it") from error
        except OSError as error:
            raise StartFailed(f"the archive cannot use {self._folder}: {error.strerror}") from error
        for left in self._folder.glob(".*.partial"):  # of a process that was killed
            left.unlink()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def belong_to(self, store: str) -> None:
        """Tie the folder to a store: another's ids would pass for archived. Raises StartFailed when it is another's."""
        file = self._folder / STORE
        if not file.exists():
            write_whole(file, f"{store}\n".encode())
        elif file.read_text().strip() != store:
            raise StartFailed(f"{self._folder} is the archive of another store: give this one a folder of its own")

    def find_end(self, partition: int) -> EntryId | None:
        """The last entry id that is archived, None without any."""
        return max((last for last, _ in self._list(partition)), default=None)

    def write(self, partition: int, first: EntryId, last: EntryId, records: Iterable[bytes]) -> None:
        """Add a segment; when this returns it is on disk."""
        ids = "-".join(str(number) for number in (*first, *last))
        write_whole(self._folder / f"{partition:02d}-{ids}.jsonl.gz", _pack(records))
        self.seal(partition)

    def seal(self, partition: int, *, anew: bool = False) -> None:
        """List the digests of the segments that are not listed yet, or of all."""
        file = self._folder / f"{partition:02d}.sha256"
        known = dict(line.split("  ")[::-1] for line in file.read_text().splitlines()) if file.exists() else {}
        segments = [segment for _, segment in sorted(self._list(partition))]
        if not anew and [segment.name for segment in segments] == list(known):
            return
        digests = {
            segment.name: known[segment.name]
            if segment.name in known and not anew
            else hashlib.sha256(segment.read_bytes()).hexdigest()
            for segment in segments
        }
        write_whole(file, "".join(f"{digest}  {name}\n" for name, digest in digests.items()).encode())

    def erase(self, partition: int, erased: Erased, digest_user: Callable[[str], str]) -> int:
        """Take erased users out of the segments, once for each erasure. The number of events that are gone.

        Raises StartFailed when a segment is damaged: nobody knows then whether it holds them.
        """
        file = self._folder / f"{partition:02d}.erased.json"
        done: dict[str, int] = orjson.loads(file.read_bytes()) if file.exists() else {}
        wanted = {digest: until_ms for digest, until_ms in erased.items() if done.get(digest) != until_ms}
        if not wanted:
            return 0
        gone = 0
        for _, segment in self._list(partition):
            records = _unpack(segment)
            kept = drop_erased(records, wanted, digest_user)
            if len(kept) < len(records):
                write_whole(segment, _pack(kept))
                gone += len(records) - len(kept)
        self.seal(partition, anew=True)
        write_whole(file, orjson.dumps(dict(erased)))
        return gone

    def _list(self, partition: int) -> list[tuple[EntryId, Path]]:
        """The segments of a partition, each by its last id."""
        named = ((_NAME.fullmatch(path.name), path) for path in self._folder.glob(f"{partition:02d}-*.jsonl.gz"))
        return [((int(name[4]), int(name[5])), path) for name, path in named if name]


def drop_erased(records: Sequence[bytes], erased: Erased, digest_user: Callable[[str], str]) -> list[bytes]:
    """The records without those of erased users from before their erasure."""
    if not erased:
        return list(records)
    return [
        record
        for record in records
        if (event := orjson.loads(record))["timestamp"] > erased.get(digest_user(event["user_id"]), -1)
    ]


def _unpack(segment: Path) -> list[bytes]:
    try:
        return gzip.decompress(segment.read_bytes()).splitlines()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise StartFailed(f"{segment} is damaged: put it back from a backup, or take it out of the folder") from error


def _pack(records: Iterable[bytes]) -> bytes:
    """Gzip without a date, so that the same records make the same file."""
    return gzip.compress(b"".join(record + b"\n" for record in records), mtime=0)

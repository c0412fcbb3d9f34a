"""Moves the event log from the store's memory to files, and removes erased users from both.

A crash at any point loses no event and archives none twice. An entry leaves the log only after it is on disk, and
entries that a crashed run left in the log are compared with the segments first. A run moves what the log held when the
run began, so it ends however many events arrive meanwhile. Events of erased users (erase.lua) are left out of new
segments and removed from old ones. A failure in one partition does not stop the others.

The archiver works while the store is full: the store never refuses commands that free memory, and a script with the
flag allow-oom writes the few bytes of the archiver's own state.
"""

import contextlib
import logging
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from model.contract.event_archive import EntryId
from service.archive.failures import describe_failure
from service.archive.rewrite import note_erasures, request_rewrite
from service.archive.segments import Archive, FolderRefused, SegmentDamaged
from service.archive.store_log import StoreLog, next_id
from service.archive.tombstones import Erased, drop_erased, parse_id
from service.errors import ArchiveFailed
from service.store.archive_status import FAILED, FAILURES, FOLDER, LAST_SUCCESS
from service.store.redis_keys import PARTITIONS, PREFIX

MERGE_LIMIT_S: Final = 60.0
"""How long one run merges segments. A folder of very many small segments is merged over several runs."""

ERASED_DAYS: Final = 400
"""How long after an erasure older events are rejected."""

_DAY_MS: Final = 86_400_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Archived:
    """What one run did, in events."""

    moved: int
    erased: int


class Archiver:
    """Archives the log of one store to one folder. `take_over`: even if the log went to another folder before."""

    def __init__(self, client: Redis, archive: Archive, *, prefix: str = PREFIX, take_over: bool = False) -> None:
        self._store = StoreLog(client, prefix)
        self._archive = archive
        self._take_over = take_over
        self._failures: list[Exception] = []

    async def run(self) -> Archived:
        """Move everything that is in the log now, carry out erasures, and merge small segments.

        After a failure it still does all work that the failure does not affect. Raises ArchiveFailed for the first one.
        """
        try:
            return await self._run()
        except Exception as error:
            failure, sentence = describe_failure(error)
            with contextlib.suppress(RedisError, OSError):
                await self._store.write("HINCRBY", self._store.state, FAILED + failure, 1)
            if failure == "other":
                raise
            raise ArchiveFailed(failure, sentence) from error
        finally:
            await self._store.close()

    async def _run(self) -> Archived:
        self._failures = []
        self._archive.refresh()
        await self._claim()
        moved = erased = 0
        ends, refused = await self._store.find_ends()
        self._failures += refused
        for partition, last in ends.items():
            with self._isolate_failure():
                moved += await self._move(partition, last)
        # Erasures after this moment are the next run's.
        now_ms = await self._store.read_time()
        await note_erasures(self._store)
        whole = set()
        for partition in range(PARTITIONS):
            with self._isolate_failure():
                gone, damaged = await self._erase(partition, now_ms)
                erased += gone
                self._failures += damaged
                if not damaged:
                    whole.add(partition)
        self._merge(whole)
        for partition in range(PARTITIONS):
            self._archive.write_checksums(partition)
        try:
            await request_rewrite(self._store, now_ms)
        except ResponseError as error:  # the only optional permission of the store's user
            sentence = "%s. The store's append-only file holds erased users until it is rewritten: run BGREWRITEAOF"
            _log.warning(sentence, describe_failure(error)[1])
        if moved or erased:
            _log.info("Archived %d events and erased %d", moved, erased)
        for fault in self._failures[1:]:
            _log.error("Archiver run had another failure: %s", describe_failure(fault)[1])
        if self._failures:
            raise self._failures[0]
        await self._store.write("HSET", self._store.state, LAST_SUCCESS, f"{time.time():.3f}")
        await self._store.ask("HDEL", self._store.state, *(FAILED + failure for failure in FAILURES))
        return Archived(moved, erased)

    @contextlib.contextmanager
    def _isolate_failure(self) -> Iterator[None]:
        """Keep a failure of one partition for the end of the run. Connection and disk failures end the run at once."""
        try:
            yield
        except (ResponseError, SegmentDamaged, ValueError, KeyError) as error:
            self._failures.append(error)

    async def _claim(self) -> None:
        """Record the folder in the store and the store in the folder. Raises FolderRefused if either names another."""
        names, state = self._store.store_name, self._store.state
        store, folder = await self._store.ask_all([("GET", names), ("HGET", state, FOLDER)])
        if store is not None or not self._take_over:  # an emptied store has no name
            self._archive.require_store("" if store is None else store.decode())
        identity = self._archive.identity
        if folder is None or (self._take_over and folder.decode() != identity):
            await self._store.write("HSET" if self._take_over else "HSETNX", state, FOLDER, identity)
            folder = await self._store.ask("HGET", state, FOLDER)
        if folder.decode() != identity:
            raise FolderRefused(
                "the log of this store goes to another folder, and two folders would each hold a part of it. To move "
                "the archive, stop its archiver and copy the old folder with all its files to here. To start a new "
                "archive, run `nextitem-serve archive --take-over` once"
            )
        if store is None:
            await self._store.write("SET", names, self._archive.store or secrets.token_hex(16), "NX")
            store = await self._store.ask("GET", names)
        self._archive.claim_for(store.decode())

    async def _move(self, partition: int, last: EntryId) -> int:
        """Archive one partition of the log up to an entry id and trim it. Returns the number of events archived."""
        moved = 0
        while True:
            entries = await self._store.read(partition, last)
            if not entries:
                return moved
            # Read after the entries, so that it covers every erasure from before they were read.
            erased = await self._store.read_erased(partition)
            ids = [parse_id(entry_id.decode()) for entry_id, _ in entries]
            moved += self._keep(partition, ids, [record for _, (_, record) in entries], erased)
            await self._store.trim(partition, ids[-1])
            if ids[-1] >= last:
                return moved

    def _keep(self, partition: int, ids: list[EntryId], records: list[bytes], erased: Erased) -> int:
        """Add entries of the log to the archive. Returns how many were not there yet.

        An entry id below the archive's end has two possible causes. A run may have ended before it trimmed the log.
        Or the store was restored on a machine whose clock is behind, and the entry is new. The events tell which.
        """
        end = self._archive.find_end(partition)
        old = 0 if end is None else sum(entry_id <= end for entry_id in ids)
        kept = drop_erased(records[old:], erased, ids[old:])
        first = ids[old] if old < len(ids) else ids[-1]
        if old and end is not None:
            again = drop_erased(records[:old], erased, ids[:old])
            missing = self._archive.find_missing(partition, ids[0], again)
            if missing:
                kept = [*missing, *kept]
                first = next_id(end)
        if kept:
            self._archive.write(partition, first, max(first, ids[-1]), kept)
        return len(kept)

    async def _erase(self, partition: int, now_ms: int) -> tuple[int, list[SegmentDamaged]]:
        """Remove erased users from the segments. Returns the number of events removed and the damaged segments.

        If no segment is damaged, erasures up to `now_ms` are no longer pending, and tombstones past their age are
        deleted.
        """
        erased = await self._store.read_erased(partition)
        gone, damaged = self._archive.erase(partition, erased)
        if not damaged:
            await self._store.end_erasures(partition, now_ms)
            for digest, stone in erased.items():
                if stone.until_ms < now_ms - ERASED_DAYS * _DAY_MS:
                    await self._store.forget(partition, digest, stone)
        return gone, damaged

    def _merge(self, partitions: set[int]) -> None:
        """Merge small segments of partitions without pending erasures: a tombstone must apply to a whole segment."""
        until_s = time.monotonic() + MERGE_LIMIT_S
        for partition in sorted(partitions):
            if time.monotonic() < until_s:
                self._failures += self._archive.merge(partition)

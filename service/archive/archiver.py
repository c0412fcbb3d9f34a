"""Moves the event log from the store's memory to files, and removes erased users from both.

A crash at any point loses no event and archives none twice. An entry leaves the log only after it is on disk, and
entries that a crashed run left in the log are compared with the segments first. A run moves what the log held when the
run began, so it ends however many events arrive meanwhile. Events of erased users (erase.lua) are left out of new
segments and removed from old ones. A failure in one partition does not stop the others.

The archiver works while the store is full: the store never refuses commands that free memory, and a script with the
flag allow-oom writes the few bytes of the archiver's own state.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from service.archive.segments import (
    Archive,
    EntryId,
    Erased,
    FolderRefused,
    SegmentDamaged,
    Tombstone,
    drop_erased,
    parse_id,
)
from service.errors import ArchiveFailed
from service.store.archive_status import (
    FAILED,
    FAILURES,
    FOLDER,
    LAST_SUCCESS,
    REWRITE_ASKED,
    REWRITE_COVERS,
    REWRITE_WANTED,
    Failure,
    name_state,
)
from service.store.multiplexer import Command, Multiplexer, ReplyTooLong
from service.store.redis_keys import PARTITIONS, PREFIX, tag_partition
from service.store.status import read_info

SEGMENT_EVENTS = 5000
"""Maximum events in a new segment and in one reply of the store. The largest such reply takes some 12 MB."""
SCAN_USERS: Final = 5000
"""Approximate number of erased users in one reply of the store."""

MERGE_LIMIT_S: Final = 60.0
"""How long one run merges segments. A folder of very many small segments is merged over several runs."""

ERASED_DAYS: Final = 400
"""How long after an erasure older events are rejected."""

REWRITE_AFTER_MS: Final = 6 * 3_600_000
"""Minimum age of an erasure when the store is asked to rewrite its append-only file. With the longest interval between
two runs, 12 hours, erased data is gone within a day."""

_DAY_MS: Final = 86_400_000

_WRITE: Final = "#!lua flags=allow-oom\nreturn redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))"
"""Runs a write command in a store that may be full. Only a script can carry the flag allow-oom."""

_FORGET: Final = "if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end"
"""Deletes a tombstone unless a newer one has replaced it."""

ANSWER_S: Final = 5.0
"""Time limit of one reply of the store, including a reply with a whole segment's events."""

_REFUSALS: Final = frozenset(
    ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM", "READONLY")
)
"""Codes of error replies of a server that works but refuses the command."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Archived:
    """What one run did, in events."""

    moved: int
    erased: int


class Archiver:
    """Archives the log of one store to one folder. `take_over`: even if the log went to another folder before."""

    def __init__(self, client: Redis, archive: Archive, *, prefix: str = PREFIX, take_over: bool = False) -> None:
        self._multiplexer = Multiplexer(client.connection_pool)
        self._archive = archive
        self._prefix = prefix
        self._state = name_state(prefix)
        self._take_over = take_over
        self._batch_events = SEGMENT_EVENTS
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
                await self._write("HINCRBY", self._state, FAILED + failure, 1)
            if failure == "other":
                raise
            raise ArchiveFailed(failure, sentence) from error
        finally:
            await self._multiplexer.close()

    async def _run(self) -> Archived:
        self._failures = []
        self._archive.refresh()
        await self._claim()
        moved = erased = 0
        for partition, last in (await self._find_ends()).items():
            with self._isolate_failure():
                moved += await self._move(partition, last)
        # Erasures after this moment are the next run's.
        now_ms = await self._read_time()
        await self._note_erasures()
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
            await self._rewrite(now_ms)
        except ResponseError as error:  # the only optional permission of the store's user
            sentence = "%s. The store's append-only file holds erased users until it is rewritten: run BGREWRITEAOF"
            _log.warning(sentence, describe_failure(error)[1])
        if moved or erased:
            _log.info("Archived %d events and erased %d", moved, erased)
        for fault in self._failures[1:]:
            _log.error("Archiver run had another failure: %s", describe_failure(fault)[1])
        if self._failures:
            raise self._failures[0]
        await self._write("HSET", self._state, LAST_SUCCESS, f"{time.time():.3f}")
        await self._ask("HDEL", self._state, *(FAILED + failure for failure in FAILURES))
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
        names, state = f"{self._prefix}store", self._state
        store, folder = await self._ask_all([("GET", names), ("HGET", state, FOLDER)])
        if store is not None or not self._take_over:  # an emptied store has no name
            self._archive.require_store("" if store is None else store.decode())
        identity = self._archive.identity
        if folder is None or (self._take_over and folder.decode() != identity):
            await self._write("HSET" if self._take_over else "HSETNX", state, FOLDER, identity)
            folder = await self._ask("HGET", state, FOLDER)
        if folder.decode() != identity:
            raise FolderRefused(
                "the log of this store goes to another folder, and two folders would each hold a part of it. To move "
                "the archive, stop its archiver and copy the old folder with all its files to here. To start a new "
                "archive, run `nextitem-serve archive --take-over` once"
            )
        if store is None:
            await self._write("SET", names, self._archive.store or secrets.token_hex(16), "NX")
            store = await self._ask("GET", names)
        self._archive.claim_for(store.decode())

    async def _find_ends(self) -> dict[int, EntryId]:
        """The last entry id of each non-empty partition of the log."""
        partitions = range(PARTITIONS)
        commands = [("XREVRANGE", self._key("log", partition), "+", "-", "COUNT", 1) for partition in partitions]
        ends = {}
        for partition, found in zip(partitions, await self._ask_all(commands, apart=True), strict=True):
            if isinstance(found, ResponseError):
                self._failures.append(found)
            elif found:
                ends[partition] = parse_id(found[0][0].decode())
        return ends

    async def _move(self, partition: int, last: EntryId) -> int:
        """Archive one partition of the log up to an entry id and trim it. Returns the number of events archived."""
        log = self._key("log", partition)
        moved = 0
        while True:
            entries = await self._read(log, last)
            if not entries:
                return moved
            # Read after the entries, so that it covers every erasure from before they were read.
            erased = await self._read_erased(partition)
            ids = [parse_id(entry_id.decode()) for entry_id, _ in entries]
            moved += self._keep(partition, ids, [record for _, (_, record) in entries], erased)
            await self._ask("XTRIM", log, "MINID", _format_id(_next_id(ids[-1])))
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
                first = _next_id(end)
        if kept:
            self._archive.write(partition, first, max(first, ids[-1]), kept)
        return len(kept)

    async def _read(self, log: str, last: EntryId) -> list[Any]:
        """The first entries of a log. After a timeout or an oversized reply it asks for half as many."""
        while True:
            try:
                entries: list[Any] = await self._ask("XRANGE", log, "-", _format_id(last), "COUNT", self._batch_events)
            except (TimeoutError, ReplyTooLong):
                if self._batch_events == 1:
                    raise
                self._batch_events = self._batch_events // 2
            else:
                return entries

    async def _erase(self, partition: int, now_ms: int) -> tuple[int, list[SegmentDamaged]]:
        """Remove erased users from the segments. Returns the number of events removed and the damaged segments.

        If no segment is damaged, erasures up to `now_ms` are no longer pending, and tombstones past their age are
        deleted.
        """
        erased = await self._read_erased(partition)
        gone, damaged = self._archive.erase(partition, erased)
        if not damaged:
            await self._ask("ZREMRANGEBYSCORE", self._key("erasing", partition), "-inf", f"({now_ms}")
            for digest, stone in erased.items():
                if stone.until_ms < now_ms - ERASED_DAYS * _DAY_MS:
                    await self._ask("EVAL", _FORGET, 1, self._key("erased", partition), digest, stone.text)
        return gone, damaged

    def _merge(self, partitions: set[int]) -> None:
        """Merge small segments of partitions without pending erasures: a tombstone must apply to a whole segment."""
        until_s = time.monotonic() + MERGE_LIMIT_S
        for partition in sorted(partitions):
            if time.monotonic() < until_s:
                self._failures += self._archive.merge(partition)

    async def _note_erasures(self) -> None:
        """Record the oldest erasure whose data is still in the append-only file, before erasures are carried out."""
        known, covered = await self._ask("HMGET", self._state, REWRITE_WANTED, REWRITE_COVERS)
        if known is not None:
            return
        since = f"({int(covered or 0)}"
        found = await self._ask_all(
            [
                ("ZRANGE", self._key("erasing", partition), since, "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
                for partition in range(PARTITIONS)
            ],
            apart=True,
        )
        times_ms = [int(float(reply[1])) for reply in found if isinstance(reply, list) and reply]
        if times_ms:
            await self._write("HSET", self._state, REWRITE_WANTED, min(times_ms))

    async def _rewrite(self, now_ms: int) -> None:
        """Have the store rewrite its append-only file, which still holds the commands that wrote the erased data.

        One rewrite covers all erasures of some hours. A failed rewrite is requested again.
        """
        wanted, asked = await self._ask("HMGET", self._state, REWRITE_WANTED, REWRITE_ASKED)
        if wanted is None and asked is None:
            return
        info = read_info(await self._ask("INFO", "persistence"))
        if info.get("aof_enabled") == "0":
            await self._ask("HDEL", self._state, REWRITE_WANTED, REWRITE_ASKED)
            return
        if "1" in (info.get("aof_rewrite_in_progress"), info.get("aof_rewrite_scheduled")):
            return
        if asked is not None:
            failed = info.get("aof_last_bgrewrite_status") != "ok"
            if failed:
                _log.error(
                    "The store failed to rewrite its append-only file, which still holds erased users: see its log"
                )
            if failed or info.get("aof_last_rewrite_time_sec") == "-1":  # or none has ended since the store was started
                wanted = asked
                await self._write("HSET", self._state, REWRITE_WANTED, int(wanted))
            await self._ask("HDEL", self._state, REWRITE_ASKED)
        if wanted is not None and now_ms - int(wanted) >= REWRITE_AFTER_MS:
            await self._write("HSET", self._state, REWRITE_ASKED, int(wanted), REWRITE_COVERS, now_ms)
            await self._ask("BGREWRITEAOF")
            await self._ask("HDEL", self._state, REWRITE_WANTED)

    async def _read_erased(self, partition: int) -> Erased:
        erased: dict[str, Tombstone] = {}
        cursor = b"0"
        while True:  # in portions: there may be more than fit into one reply
            cursor, found = await self._ask("HSCAN", self._key("erased", partition), cursor, "COUNT", SCAN_USERS)
            words = iter(found)
            for digest, text in zip(words, words, strict=True):
                erased[digest.decode()] = Tombstone.parse(text.decode())
            if cursor == b"0":
                return erased

    async def _read_time(self) -> int:
        """The store's time in ms."""
        seconds, microseconds = await self._ask("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def _write(self, command: str, key: str, *words: str | int) -> None:
        await self._ask("EVAL", _WRITE, 1, key, command, *words)

    async def _ask(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - whatever the store answers
        [reply] = await self._ask_all([command])
        return reply

    async def _ask_all(self, commands: Sequence[Command], *, apart: bool = False) -> list[Any]:
        """The undecoded replies to commands, in one round trip. With `apart` error replies are returned, not raised."""
        async with asyncio.timeout(ANSWER_S):
            replies = await self._multiplexer.ask(commands)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ResponseError):
                reply.add_note(str(command[0]))
                if not apart:
                    raise reply
        return replies

    def _key(self, kind: str, partition: int) -> str:
        return f"{self._prefix}{kind}:{tag_partition(partition)}"


def describe_failure(error: Exception) -> tuple[Failure, str]:  # noqa: PLR0911 - a list of kinds
    """The kind of a failure, and a sentence for the operator. It names no user."""
    if isinstance(error.__cause__, AuthenticationError):
        return "refused", "the store refuses the archiver's user or password"
    if isinstance(error, ResponseError):
        code, command = str(error).partition(" ")[0], " ".join(getattr(error, "__notes__", ()))
        if code in _REFUSALS:
            return "refused", f"the store refuses {command} ({code})"
        return (
            "data",
            f"the store cannot do {command} ({code}): a key of the log holds data that the service did not write",
        )
    if isinstance(error, FolderRefused):
        return "folder", str(error)
    if isinstance(error, SegmentDamaged):
        return "segment", f"{error}. All other work is done; erasures wait for this file"
    if isinstance(error, TimeoutError):
        return "timeout", "the store did not answer in time"
    if isinstance(error, RedisError | ConnectionError):
        return "connection", "the store cannot be reached"
    if isinstance(error, OSError):
        return (
            "disk",
            f"the archive cannot be written: {error.strerror}. Until it can, the log stays in the store and fills it",
        )
    if isinstance(error, ValueError | KeyError):
        return "data", "the store's log holds data that the service did not write"
    return "other", "the archiver failed"


def _format_id(entry_id: EntryId) -> str:
    return f"{entry_id[0]}-{entry_id[1]}"


def _next_id(entry_id: EntryId) -> EntryId:
    """The smallest id after this one."""
    return entry_id[0], entry_id[1] + 1

"""Moves the log from the store's memory to files, and takes what is erased out of both.

A crash at any point loses nothing and archives nothing twice: entries leave the log only up to the end of what is on
disk, and reading begins behind that end. Events of erased users (erase.lua) are left out of new segments, and taken out
of old ones by the next run.
"""

import logging
import secrets
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from service.errors import StoreUnavailable
from service.keys import PARTITIONS, PREFIX, digest_user, tag_partition
from service.segments import Archive, EntryId, Erased, drop_erased

SEGMENT_EVENTS = 20_000
"""Events in one segment, at most."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Archived:
    """What one run did, in events."""

    moved: int
    erased: int


class Archiver:
    """Archives the log of one store in one folder."""

    def __init__(self, client: Redis, archive: Archive, *, prefix: str = PREFIX) -> None:
        self._client = client
        self._archive = archive
        self._prefix = prefix

    async def run(self) -> Archived:
        """Move everything that is in the log now, then erase.

        Raises StoreUnavailable, OSError when the disk fails, StartFailed for another store's archive or a damaged one.
        """
        try:
            self._archive.belong_to(await self._name_store())
            moved = erased = 0
            for partition in range(PARTITIONS):
                moved += await self._move(partition)
            # Last: a segment that cannot be read keeps none of the log in the store. And after the segments were
            # written: who is erased from here on is seen by the next run.
            for partition in range(PARTITIONS):
                erased += self._archive.erase(partition, await self._read_erased(partition), digest_user)
        except RedisError as error:
            raise StoreUnavailable from error
        if moved or erased:
            _log.info("Archived %d events and erased %d", moved, erased)
        return Archived(moved, erased)

    async def _move(self, partition: int) -> int:
        """Archive one partition of the log and trim it. How many events that were."""
        log = f"{self._prefix}log:{tag_partition(partition)}"
        self._archive.seal(partition)  # a crash may have come between a segment and its digest
        moved = 0
        while True:
            end = self._archive.find_end(partition)
            if end is not None:
                await self._ask("XTRIM", log, "MINID", _spell(_follow(end)))
            entries = await self._ask("XRANGE", log, "-", "+", "COUNT", SEGMENT_EVENTS)
            if not entries:
                return moved
            records = drop_erased(
                [fields[b"e"] for _, fields in entries], await self._read_erased(partition), digest_user
            )
            self._archive.write(partition, _parse(entries[0][0]), _parse(entries[-1][0]), records)
            moved += len(records)

    async def _read_erased(self, partition: int) -> Erased:
        found = await self._ask("HGETALL", f"{self._prefix}erased:{tag_partition(partition)}")
        return {digest.decode(): int(until_ms) for digest, until_ms in found.items()}

    async def _name_store(self) -> str:
        """The name that this store was given by its first archiver."""
        key = f"{self._prefix}store"
        await self._ask("SET", key, secrets.token_hex(16), "NX")
        name: bytes = await self._ask("GET", key)
        return name.decode()

    async def _ask(self, *command: str | int) -> Any:  # noqa: ANN401 - whatever the store answers
        return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]  # untyped there


def _parse(entry_id: bytes) -> EntryId:
    milliseconds, _, sequence = entry_id.partition(b"-")
    return int(milliseconds), int(sequence)


def _spell(entry_id: EntryId) -> str:
    return f"{entry_id[0]}-{entry_id[1]}"


def _follow(entry_id: EntryId) -> EntryId:
    """The smallest id after this one."""
    return entry_id[0], entry_id[1] + 1

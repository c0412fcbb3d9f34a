"""What the archiver asks of the store: the log's entries, erasures, and its own state."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from model.contract.event_archive import EntryId
from service.archive.tombstones import Erased, Tombstone, parse_id
from service.store.archive_status import name_state
from service.store.multiplexer import Command, Multiplexer, ReplyTooLong
from service.store.redis_keys import PARTITIONS, tag_partition

SEGMENT_EVENTS = 5000
"""Maximum events in a new segment and in one reply of the store. The largest such reply takes some 12 MB."""
SCAN_USERS: Final = 5000
"""Approximate number of erased users in one reply of the store."""

ANSWER_S: Final = 5.0
"""Time limit of one reply of the store, including a reply with a whole segment's events."""

_WRITE: Final = "#!lua flags=allow-oom\nreturn redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))"
"""Runs a write command in a store that may be full. Only a script can carry the flag allow-oom."""

_FORGET: Final = "if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end"
"""Deletes a tombstone unless a newer one has replaced it."""


class StoreLog:
    """The log of one store, the erasures in it, and the hash `state` that the archiver keeps beside it."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self._multiplexer = Multiplexer(client.connection_pool)
        self._prefix = prefix
        self._batch_events = SEGMENT_EVENTS
        self.state = name_state(prefix)
        """Key of the archiver's state."""
        self.store_name = f"{prefix}store"
        """Key of the store's name."""

    async def close(self) -> None:
        """Close the connection."""
        await self._multiplexer.close()

    async def find_ends(self) -> tuple[dict[int, EntryId], list[ResponseError]]:
        """The last entry id of each non-empty partition, and the error replies of the others."""
        partitions = range(PARTITIONS)
        commands = [("XREVRANGE", self.key("log", partition), "+", "-", "COUNT", 1) for partition in partitions]
        ends, refused = {}, []
        for partition, found in zip(partitions, await self.ask_all(commands, apart=True), strict=True):
            if isinstance(found, ResponseError):
                refused.append(found)
            elif found:
                ends[partition] = parse_id(found[0][0].decode())
        return ends, refused

    async def read(self, partition: int, last: EntryId) -> list[Any]:
        """The first entries of a partition, up to an entry id: pairs of id and fields.

        After a timeout or an oversized reply it asks for half as many.
        """
        log = self.key("log", partition)
        while True:
            try:
                entries: list[Any] = await self.ask("XRANGE", log, "-", format_id(last), "COUNT", self._batch_events)
            except (TimeoutError, ReplyTooLong):
                if self._batch_events == 1:
                    raise
                self._batch_events = self._batch_events // 2
            else:
                return entries

    async def trim(self, partition: int, last: EntryId) -> None:
        """Delete the entries of a partition up to an entry id."""
        await self.ask("XTRIM", self.key("log", partition), "MINID", format_id(next_id(last)))

    async def read_erased(self, partition: int) -> Erased:
        """The tombstones of a partition."""
        erased: dict[str, Tombstone] = {}
        cursor = b"0"
        while True:  # in portions: there may be more than fit into one reply
            cursor, found = await self.ask("HSCAN", self.key("erased", partition), cursor, "COUNT", SCAN_USERS)
            words = iter(found)
            for digest, text in zip(words, words, strict=True):
                erased[digest.decode()] = Tombstone.parse(text.decode())
            if cursor == b"0":
                return erased

    async def end_erasures(self, partition: int, before_ms: int) -> None:
        """Erasures of a partition from before a time are no longer pending."""
        await self.ask("ZREMRANGEBYSCORE", self.key("erasing", partition), "-inf", f"({before_ms}")

    async def forget(self, partition: int, digest: str, stone: Tombstone) -> None:
        """Delete a user's tombstone, unless a newer one has replaced it."""
        await self.ask("EVAL", _FORGET, 1, self.key("erased", partition), digest, stone.text)

    async def read_time(self) -> int:
        """The store's time in ms."""
        seconds, microseconds = await self.ask("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def write(self, command: str, key: str, *words: str | int) -> None:
        """Run a write command, also in a full store."""
        await self.ask("EVAL", _WRITE, 1, key, command, *words)

    async def ask(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - whatever the store answers
        """The undecoded reply to one command. Raises RedisError, TimeoutError, ReplyTooLong."""
        [reply] = await self.ask_all([command])
        return reply

    async def ask_all(self, commands: Sequence[Command], *, apart: bool = False) -> list[Any]:
        """The undecoded replies to commands, in one round trip. With `apart` error replies are returned, not raised.

        An error reply has a note with the name of its command.
        """
        async with asyncio.timeout(ANSWER_S):
            replies = await self._multiplexer.ask(commands)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ResponseError):
                reply.add_note(str(command[0]))
                if not apart:
                    raise reply
        return replies

    def key(self, kind: str, partition: int) -> str:
        """The key of a partition's `log`, `erased` or `erasing`."""
        return f"{self._prefix}{kind}:{tag_partition(partition)}"


def format_id(entry_id: EntryId) -> str:
    """Spell an entry id as the store does."""
    return f"{entry_id[0]}-{entry_id[1]}"


def next_id(entry_id: EntryId) -> EntryId:
    """The smallest entry id after this one."""
    return entry_id[0], entry_id[1] + 1

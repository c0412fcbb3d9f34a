"""What the judge asks of the store: new entries of the log, and histories. It writes nothing there."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from model.contract.deployment.live_sums import Cursor
from model.contract.event_archive import EntryId
from service.archive.tombstones import parse_id
from service.judge.events import Damaged, LoggedEvent, parse_entry
from service.store.multiplexer import Command, Multiplexer
from service.store.redis_keys import PARTITIONS, PREFIX, name_keys, tag_partition

READ_EVENTS: Final = 100
"""Maximum entries of one partition in one reply: with the largest records some 600 KB."""
ANSWER_S: Final = 5.0
"""Time limit of a round trip."""
_START: Final = "0-0"
_OF_ONE_KEY: Final = ("ERR no such key", "WRONGTYPE")
"""Error replies about one key: a log without events, a key that somebody else wrote."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Some new entries of the log."""

    entries: list[LoggedEvent | Damaged]
    """In the order in which they were accepted."""
    begun: dict[int, Cursor]
    """By partition: where reading begins anew, because it never began or the log is another one."""
    gone: dict[int, int]
    """By partition: how many entries left the log before they were read."""
    full: bool
    """Whether there are more."""
    now_ms: int
    """The store's time."""


class _Log(NamedTuple):
    """What the store tells of a partition's log."""

    last: EntryId
    added: int
    """How many entries it was given in its life."""
    length: int


class LogReader:
    """Reads the log of one store from where `cursors` say, each entry once."""

    def __init__(self, client: Redis, cursors: Mapping[int, Cursor], *, prefix: str = PREFIX) -> None:
        self._multiplexer = Multiplexer(client.connection_pool)
        self._prefix = prefix
        self._cursors = dict(cursors)
        self._logs = [f"{prefix}log:{tag_partition(partition)}" for partition in range(PARTITIONS)]

    async def close(self) -> None:
        """Close the connection."""
        await self._multiplexer.close()

    async def read(self, *, recount: bool) -> Portion:
        """The next entries. With `recount` it also counts what left the log unread.

        Raises RedisError, OSError and TimeoutError, and then has not moved on.
        """
        cursors, begun = dict(self._cursors), {}
        logs = await self._inspect() if recount or len(cursors) < PARTITIONS else None
        for partition, log in enumerate(logs or ()):
            cursor = cursors.get(partition)
            if cursor is None or log.last < parse_id(cursor.entry_id) or log.added < cursor.counted:
                cursors[partition] = begun[partition] = Cursor(_START, log.added - log.length)
        seconds_and_more, *replies = await self._ask(
            [
                ("TIME",),
                *(
                    ("XREAD", "COUNT", READ_EVENTS, "STREAMS", log, cursors[partition].entry_id)
                    for partition, log in enumerate(self._logs)
                ),
            ]
        )
        entries: list[LoggedEvent | Damaged] = []
        gone, full = {}, False
        for partition, reply in enumerate(replies):
            new = reply[0][1] if reply else []
            cursor, full = cursors[partition], full or len(new) == READ_EVENTS
            lost = _count_gone(logs[partition], cursor, new) if logs else 0
            if lost:
                gone[partition] = lost
            last = new[-1][0].decode() if new else cursor.entry_id
            cursors[partition] = Cursor(last, cursor.counted + lost + len(new))
            entries += [parse_entry(partition, entry) for entry in new]
        entries.sort(key=lambda entry: entry.accepted_ms)  # stable: entries of one partition keep their order
        self._cursors = cursors
        seconds, microseconds = map(int, seconds_and_more)
        return Portion(entries, begun, gone, full, 1000 * seconds + microseconds // 1000)

    async def read_histories(self, events: Sequence[LoggedEvent]) -> list[object]:
        """All remembered entries of each event's user, undecoded; an exception where a key holds something else.

        Raises RedisError, OSError and TimeoutError.
        """
        keys = [str(name_keys(event.user_id, prefix=self._prefix).history) for event in events]
        unique = list(dict.fromkeys(keys))
        replies = dict(
            zip(unique, await self._ask([("LRANGE", key, 0, -1) for key in unique], apart=True), strict=True)
        )
        return [replies[key] for key in keys]

    async def _inspect(self) -> list[_Log]:
        replies = await self._ask([("XINFO", "STREAM", log) for log in self._logs], apart=True)
        return [_read_log(reply) for reply in replies]

    async def _ask(self, commands: Sequence[Command], *, apart: bool = False) -> list[Any]:
        """The undecoded replies to commands. With `apart` error replies that concern one key are returned."""
        async with asyncio.timeout(ANSWER_S):
            replies = await self._multiplexer.ask(commands)
        for reply in replies:
            if isinstance(reply, ResponseError) and not (apart and str(reply).startswith(_OF_ONE_KEY)):
                raise reply
        return replies


def _read_log(reply: Any) -> _Log:  # noqa: ANN401 - as the store replies
    if isinstance(reply, ResponseError):
        return _Log((0, 0), 0, 0)  # no events yet
    told = dict(zip(reply[::2], reply[1::2], strict=True))
    return _Log(parse_id(told[b"last-generated-id"].decode()), told[b"entries-added"], told[b"length"])


def _count_gone(log: _Log, cursor: Cursor, new: Sequence[Any]) -> int:
    """How many entries between a cursor and the log's last one were not there any more when it was read."""
    ids = [parse_id(entry[0].decode()) for entry in new]
    if len(new) == READ_EVENTS and ids[-1] < log.last:
        return 0  # the rest is not read yet
    return max(0, log.added - cursor.counted - sum(entry_id <= log.last for entry_id in ids))

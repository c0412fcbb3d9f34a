"""Stores and reads the histories of users in Redis or Valkey. append.lua documents the keys.

It handles item ids, never a model's indexes. No exception of redis-py leaves HistoryStore: each failure becomes
StoreUnavailable.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from service.errors import StoreUnavailable
from service.settings import Durability
from service.store.archive_status import list_commands, read_state
from service.store.calls import StoreCalls
from service.store.event import Event
from service.store.failures import ErrorKind, is_users_damage
from service.store.multiplexer import Command
from service.store.operations import Operation
from service.store.recent_users import RecentUser, ask_newest, read_users
from service.store.records import Appended, History, Outcome, StoredEvent
from service.store.redis_keys import PREFIX, CatalogueKeys, digest_user, name_keys
from service.store.replies import decode_events, decode_history, raise_first
from service.store.scripts import APPEND, ERASE, Call
from service.store.status import StoreState

EVENTS_PER_CALL: Final = 200
"""Maximum events per script call, because a script blocks the server while it runs."""

ENTRIES_PER_SCAN: Final = 1000
"""How many entries of the log an erasure scans at a time."""

ERASE_TIMEOUT_S: Final = 30.0
"""An erasure scans a whole partition of the log; each step has the usual time limit."""

DAY_MS: Final = 24 * 60 * 60 * 1000


class HistoryStore(StoreCalls):
    """Appends events and reads histories, each in one round trip.

    With `durability` strict, appends to a store that may lose events raise StoreNotDurable; reads go on. With
    `reads_events` histories hold their `events`.

    Deduplication marks beyond the newest `marks_kept` of a user are deleted once they are older than `marks_age_ms`.
    All of a user's keys expire after `idle_ms` without an event, or up to a tenth earlier.
    """

    def __init__(
        self,
        client: Redis,
        *,
        history_length: int = 1000,
        prefix: str = PREFIX,
        marks_kept: int = 1000,
        marks_age_ms: int = DAY_MS,
        idle_ms: int = 400 * DAY_MS,
        read_timeout_s: float = 0.25,
        write_timeout_s: float = 1.0,
        durability: Durability = "strict",
        reads_events: bool = False,
        observe: Callable[[Operation, float], None] | None = None,
        on_error: Callable[[ErrorKind], None] | None = None,
    ) -> None:
        if history_length < 1:
            raise ValueError("history_length starts at 1")
        if "{" in prefix or "}" in prefix:
            raise ValueError("braces in the prefix would steer the cluster slot")
        super().__init__(
            client,
            prefix=prefix,
            read_timeout_s=read_timeout_s,
            write_timeout_s=write_timeout_s,
            durability=durability,
            observe=observe,
            on_error=on_error,
        )
        self._history_length = history_length
        self._limits = (history_length, marks_kept, marks_age_ms, idle_ms)
        self.reads_events = reads_events
        """Whether histories hold their `events`. A swap of the model may change it."""
        self.on_catalogue_version: Callable[[object, float], None] | None = None
        """Gets the reply for the catalogue's version, which each read then brings along, and when it was asked for."""
        self._read_version: Command = ("GET", CatalogueKeys(prefix).version)

    async def append(self, events: Sequence[Event]) -> Appended:
        """Store events, each user's in the order given. When it returns, all are in the log and in the histories.

        The exception are events of users whose keys are damaged: they are not stored and have the outcome DAMAGED.
        Raises StoreUnavailable for any other failure. Some events may then be stored; appending them again is safe.
        """
        calls = list(self._plan_calls(events))
        outcomes: list[Outcome] = [Outcome.CONFLICT] * len(events)
        versions: dict[str, int] = {}
        async with self.boundary("append", self.write_timeout_s):
            await self.require_safety()
            replies = await self.scripts.run(APPEND, [arguments for _, arguments in calls])
            for (indexes, _), reply in zip(calls, replies, strict=True):
                user_id = events[indexes[0]].user_id
                if isinstance(reply, RedisError):
                    self._note_damage(user_id, reply)
                    results = [Outcome.DAMAGED] * len(indexes)
                else:
                    version, *results = reply
                    if not isinstance(version, int):
                        raise TypeError("a version is no number")
                    versions[user_id] = version
                for index, result in zip(indexes, results, strict=True):
                    outcomes[index] = Outcome(result)
        self.note_accepted()
        return Appended(outcomes, versions)

    async def read_many(
        self, user_ids: Sequence[str], *, within_s: float = math.inf
    ) -> list[History | StoreUnavailable]:
        """The histories of users, in the order given, empty for unknown users. One round trip.

        A StoreUnavailable takes the place of a history whose keys are damaged. Takes at most `within_s` seconds, and
        at most the limit of every read.
        """
        histories: dict[str, History | StoreUnavailable] = {}
        async with self.boundary("read", min(self.read_timeout_s, within_s)):
            for user_id, version, entries in await self._fetch(dict.fromkeys(user_ids)):
                try:
                    histories[user_id] = decode_history(version, entries, with_events=self.reads_events)
                except Exception as error:  # noqa: BLE001 - whatever stands there, it is one user's
                    histories[user_id] = self._note_damage(user_id, error)
        return [histories[user_id] for user_id in user_ids]

    async def export(self, user_id: str) -> tuple[int, list[StoredEvent]]:
        """The version and every remembered event of a user, oldest first."""
        async with self.boundary("export", self.read_timeout_s):
            [(_, version, entries)] = await self._fetch([user_id])
            try:
                return decode_events(version, entries)
            except Exception as error:  # as for many
                raise self._note_damage(user_id, error) from error

    def _note_damage(self, user_id: str, error: BaseException) -> StoreUnavailable:
        """Count and log damaged keys of a user. Returns the exception for this user."""
        self.count_error("damaged")
        self.failures.damaged(name_keys(user_id, prefix=self.prefix).partition, error)
        return StoreUnavailable(kind="damaged")

    async def list_recent(self, limit: int) -> list[RecentUser]:
        """At most `limit` users, those of the newest events in the log, the newest first. Archived events are gone."""
        async with self.boundary("export", self.read_timeout_s):
            return read_users(await self.multiplexer.ask(ask_newest(self.prefix)), limit)

    async def erase(self, user_id: str) -> None:
        """Erase a user: history, marks, and entries of the log. The archiver erases archived events.

        From now on the store rejects events from before the erasure, by the earlier of this clock and the store's, and
        all events that were remembered. It works in a full store.

        Raises StoreUnavailable if any step failed; erasing again is safe.
        """
        keys = name_keys(user_id, prefix=self.prefix)
        async with self.boundary("erase", ERASE_TIMEOUT_S):
            await self.require_safety()
            [last] = await self.scripts.run(
                ERASE, [[*keys, keys.erasing, digest_user(user_id), int(time.time() * 1000)]]
            )
            after = "-"
            while after:
                async with asyncio.timeout(self.write_timeout_s):
                    after = await self._erase_entries(keys.log, user_id, after, last)

    async def _erase_entries(self, log: str, user_id: str, start: str, last: bytes) -> str:
        """Delete a user's entries among the next ENTRIES_PER_SCAN of a log. Returns where to go on, "" at the end."""
        [entries] = await self.multiplexer.ask([("XRANGE", log, start, last, "COUNT", ENTRIES_PER_SCAN)])
        raise_first([entries])
        mine = [entry_id for entry_id, (_, record) in entries if orjson.loads(record)["user_id"] == user_id]
        if mine:
            raise_first(await self.scripts.ask_safely([("XDEL", log, *mine)]))
            self.guard.require()
        return f"({entries[-1][0].decode()}" if len(entries) == ENTRIES_PER_SCAN else ""

    async def inspect(self) -> StoreState:
        """The store's memory, safety and clock, and the archiver's status."""
        async with self.boundary("inspect", self.read_timeout_s):
            info, skew_s = await self.check_store()
            archive = read_state(await self.multiplexer.ask(list_commands(self.prefix)))
            return StoreState(
                durable=self.durable,
                memory_bytes=int(info["used_memory"]),
                memory_limit_bytes=int(info.get("maxmemory", 0)),  # not every server has one
                clock_skew_s=skew_s,
                lost_events=self.lost_events,
                archive=archive,
            )

    def _plan_calls(self, events: Sequence[Event]) -> Iterable[tuple[list[int], Call]]:
        """Divide events into script calls: the indexes of each call's events, and its keys and arguments."""
        by_user: dict[str, list[int]] = {}
        for index, event in enumerate(events):
            by_user.setdefault(event.user_id, []).append(index)
        for user_id, indexes in by_user.items():
            keys = name_keys(user_id, prefix=self.prefix)
            for start in range(0, len(indexes), EVENTS_PER_CALL):
                portion = indexes[start : start + EVENTS_PER_CALL]
                arguments: Call = [*keys, *self._limits, digest_user(user_id)]
                for event in (events[index] for index in portion):
                    arguments += (event.event_id, event.digest, event.entry(), event.log_record())
                yield portion, arguments

    async def _fetch(self, user_ids: Collection[str]) -> Iterable[tuple[str, object, object]]:
        """Each user's id with the store's replies for version and entries."""
        commands: list[Command] = []
        for user_id in user_ids:
            keys = name_keys(user_id, prefix=self.prefix)
            # The version first: it can then be too low, but never too high for the entries.
            commands += (("GET", keys.version), ("LRANGE", keys.history, -self._history_length, -1))
        note_version, asked_s = self.on_catalogue_version, time.perf_counter()
        if note_version is not None:
            commands.append(self._read_version)
        replies = await self.multiplexer.ask(commands)
        if note_version is not None:
            note_version(replies.pop(), asked_s)
        raise_first(reply for reply in replies if not is_users_damage(reply))
        return zip(user_ids, replies[::2], replies[1::2], strict=True)

"""Stores and reads the histories of users in Redis or Valkey. append.lua documents the keys.

It handles item ids, never a model's indexes. No exception of redis-py leaves HistoryStore: each failure becomes
StoreUnavailable.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from service.errors import StoreNotDurable, StoreUnavailable
from service.settings import Durability
from service.store.archive_status import list_commands, read_state
from service.store.circuit_breaker import PATIENCE_S
from service.store.durability import DurabilityGuard, check_mode, check_persistence, check_settings
from service.store.event import Event
from service.store.failures import ErrorKind, FailureLog, classify, is_users_damage
from service.store.multiplexer import Command, Multiplexer
from service.store.operations import CALLS, Operation
from service.store.recent_users import RecentUser, ask_newest, read_users
from service.store.records import Appended, History, Outcome, StoredEvent
from service.store.redis_keys import LOST_EVENTS, PREFIX, digest_user, name_keys
from service.store.replies import decode_events, decode_history, raise_first
from service.store.scripts import APPEND, ERASE, READ_SETTINGS, Call, ScriptRunner
from service.store.status import StateLog, StoreState, find_refusal, measure_skew, read_info, read_settings

EVENTS_PER_CALL: Final = 200
"""Maximum events per script call, because a script blocks the server while it runs."""

ENTRIES_PER_SCAN: Final = 1000
"""How many entries of the log an erasure scans at a time."""

ERASE_TIMEOUT_S: Final = 30.0
"""An erasure scans a whole partition of the log; each step has the usual time limit."""

_STATE_COMMANDS: Final[tuple[Command, ...]] = (("GET", LOST_EVENTS), ("INFO",), READ_SETTINGS)

REFUSED_S: Final = 10.0
"""How long after a refused append the store counts as refusing events, unless an append succeeds."""
DAY_MS: Final = 24 * 60 * 60 * 1000


class HistoryStore:
    """Appends events and reads histories, each in one round trip.

    With `durability` strict, appends to a store that may lose events raise StoreNotDurable; reads go on. With
    `reads_events` histories hold their `events`. `observe` gets the seconds of every operation, `on_error` the kind of
    every failure; failures are logged, too.

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
        self._client = client
        self._multiplexer = Multiplexer(client.connection_pool)
        self._history_length = history_length
        self._prefix = prefix
        self._limits = (history_length, marks_kept, marks_age_ms, idle_ms)
        self._read_timeout_s = read_timeout_s
        self._write_timeout_s = write_timeout_s
        self._guard = DurabilityGuard(durability)
        self._scripts = ScriptRunner(self._multiplexer, self._guard)
        self.lost_events = 0
        """How many events the embedded store had lost at the last check."""
        self.reads_events = reads_events
        """Whether histories hold their `events`. A swap of the model may change it."""
        self._failures = FailureLog()
        self._state_log = StateLog()
        self._refused_s = float("-inf")
        self._observe = observe
        self._on_error = on_error

    @property
    def durable(self) -> bool:
        """Whether the store's settings were safe at the last check."""
        return self._guard.known_safe

    @property
    def refuses_events(self) -> bool:
        """Whether the store refused events at the last append or check."""
        return self._state_log.refusal is not None or time.monotonic() - self._refused_s < REFUSED_S

    async def append(self, events: Sequence[Event]) -> Appended:
        """Store events, each user's in the order given. When it returns, all are in the log and in the histories.

        The exception are events of users whose keys are damaged: they are not stored and have the outcome DAMAGED.
        Raises StoreUnavailable for any other failure. Some events may then be stored; appending them again is safe.
        """
        calls = list(self._plan_calls(events))
        outcomes: list[Outcome] = [Outcome.CONFLICT] * len(events)
        versions: dict[str, int] = {}
        async with self._boundary("append", self._write_timeout_s):
            await self._require_safety()
            replies = await self._scripts.run(APPEND, [arguments for _, arguments in calls])
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
        self._refused_s = float("-inf")
        return Appended(outcomes, versions)

    async def read_many(
        self, user_ids: Sequence[str], *, within_s: float = math.inf
    ) -> list[History | StoreUnavailable]:
        """The histories of users, in the order given, empty for unknown users. One round trip.

        A StoreUnavailable takes the place of a history whose keys are damaged. Takes at most `within_s` seconds, and
        at most the limit of every read.
        """
        histories: dict[str, History | StoreUnavailable] = {}
        async with self._boundary("read", min(self._read_timeout_s, within_s)):
            for user_id, version, entries in await self._fetch(dict.fromkeys(user_ids)):
                try:
                    histories[user_id] = decode_history(version, entries, with_events=self.reads_events)
                except Exception as error:  # noqa: BLE001 - whatever stands there, it is one user's
                    histories[user_id] = self._note_damage(user_id, error)
        return [histories[user_id] for user_id in user_ids]

    async def export(self, user_id: str) -> tuple[int, list[StoredEvent]]:
        """The version and every remembered event of a user, oldest first."""
        async with self._boundary("export", self._read_timeout_s):
            [(_, version, entries)] = await self._fetch([user_id])
            try:
                return decode_events(version, entries)
            except Exception as error:  # as for many
                raise self._note_damage(user_id, error) from error

    def _note_damage(self, user_id: str, error: BaseException) -> StoreUnavailable:
        """Count and log damaged keys of a user. Returns the exception for this user."""
        if self._on_error:
            self._on_error("damaged")
        self._failures.damaged(name_keys(user_id, prefix=self._prefix).partition, error)
        return StoreUnavailable(kind="damaged")

    async def list_recent(self, limit: int) -> list[RecentUser]:
        """At most `limit` users, those of the newest events in the log, the newest first. Archived events are gone."""
        async with self._boundary("export", self._read_timeout_s):
            return read_users(await self._multiplexer.ask(ask_newest(self._prefix)), limit)

    async def erase(self, user_id: str) -> None:
        """Erase a user: history, marks, and entries of the log. The archiver erases archived events.

        From now on the store rejects events from before the erasure, by the earlier of this clock and the store's, and
        all events that were remembered. It works in a full store.

        Raises StoreUnavailable if any step failed; erasing again is safe.
        """
        keys = name_keys(user_id, prefix=self._prefix)
        async with self._boundary("erase", ERASE_TIMEOUT_S):
            await self._require_safety()
            [last] = await self._scripts.run(
                ERASE, [[*keys, keys.erasing, digest_user(user_id), int(time.time() * 1000)]]
            )
            after = "-"
            while after:
                async with asyncio.timeout(self._write_timeout_s):
                    after = await self._erase_entries(keys.log, user_id, after, last)

    async def _erase_entries(self, log: str, user_id: str, start: str, last: bytes) -> str:
        """Delete a user's entries among the next ENTRIES_PER_SCAN of a log. Returns where to go on, "" at the end."""
        [entries] = await self._multiplexer.ask([("XRANGE", log, start, last, "COUNT", ENTRIES_PER_SCAN)])
        raise_first([entries])
        mine = [entry_id for entry_id, (_, record) in entries if orjson.loads(record)["user_id"] == user_id]
        if mine:
            raise_first(await self._scripts.ask_safely([("XDEL", log, *mine)]))
            self._guard.require()
        return f"({entries[-1][0].decode()}" if len(entries) == ENTRIES_PER_SCAN else ""

    async def _require_safety(self) -> None:
        if self._guard.needs_check:
            await self._check_store()
        self._guard.require()

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the store answers. Checks its settings and state, too."""
        async with self._boundary("ping", self._read_timeout_s):
            await self._check_store(("PING",))

    async def inspect(self) -> StoreState:
        """The store's memory, safety and clock, and the archiver's status."""
        async with self._boundary("inspect", self._read_timeout_s):
            info, skew_s = await self._check_store()
            archive = read_state(await self._multiplexer.ask(list_commands(self._prefix)))
            return StoreState(
                durable=self.durable,
                memory_bytes=int(info["used_memory"]),
                memory_limit_bytes=int(info.get("maxmemory", 0)),  # not every server has one
                clock_skew_s=skew_s,
                lost_events=self.lost_events,
                archive=archive,
            )

    async def close(self) -> None:
        await self._multiplexer.close()
        await self._client.aclose()

    def _plan_calls(self, events: Sequence[Event]) -> Iterable[tuple[list[int], Call]]:
        """Divide events into script calls: the indexes of each call's events, and its keys and arguments."""
        by_user: dict[str, list[int]] = {}
        for index, event in enumerate(events):
            by_user.setdefault(event.user_id, []).append(index)
        for user_id, indexes in by_user.items():
            keys = name_keys(user_id, prefix=self._prefix)
            for start in range(0, len(indexes), EVENTS_PER_CALL):
                portion = indexes[start : start + EVENTS_PER_CALL]
                arguments: Call = [*keys, *self._limits, digest_user(user_id)]
                for event in (events[index] for index in portion):
                    arguments += (event.event_id, event.digest, event.entry(), event.log_record())
                yield portion, arguments

    async def _check_store(self, *commands: Command) -> tuple[dict[str, str], float | None]:
        """Check the store, in one round trip with other commands. Returns INFO, and how far its clock is ahead."""
        asked_s = time.time()
        *replies, lost, told, settings = await self._multiplexer.ask([*commands, *_STATE_COMMANDS])
        answered_s = time.time()
        raise_first([*replies, told])  # a refused settings query counts as unsafe
        # Only the embedded store records lost events: others may refuse the query.
        self.lost_events = int(lost) if isinstance(lost, bytes) and lost.isdigit() else 0
        info = read_info(told)
        unproven = {} if self.durable else check_persistence(info)
        self._guard.update({**check_settings(read_settings(settings)), **check_mode(info), **unproven})
        self._state_log.update_refusal(find_refusal(info))
        skew_s = measure_skew(info, asked_s=asked_s, answered_s=answered_s)
        self._state_log.update_skew(skew_s)
        return info, skew_s

    async def _fetch(self, user_ids: Collection[str]) -> Iterable[tuple[str, object, object]]:
        """Each user's id with the store's replies for version and entries."""
        commands: list[Command] = []
        for user_id in user_ids:
            keys = name_keys(user_id, prefix=self._prefix)
            # The version first: it can then be too low, but never too high for the entries.
            commands += (("GET", keys.version), ("LRANGE", keys.history, -self._history_length, -1))
        replies = await self._multiplexer.ask(commands)
        raise_first(reply for reply in replies if not is_users_damage(reply))
        return zip(user_ids, replies[::2], replies[1::2], strict=True)

    @asynccontextmanager
    async def _boundary(self, operation: Operation, timeout_s: float) -> AsyncIterator[None]:
        """Measure an operation, limit its time, and turn any failure into StoreUnavailable."""
        started_s = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except StoreNotDurable:
            if self._on_error:
                self._on_error("unsafe")
            raise
        except StoreUnavailable:
            raise  # of one user, and already logged
        except Exception as error:  # clients see any failure of the store as 503; the log has the details
            kind = classify(error)
            if self._on_error:
                self._on_error(kind)
            if kind != "timeout" or timeout_s >= PATIENCE_S:  # else its own time limit was too short to judge the store
                self._failures.failed(CALLS[operation], error, kind=kind)
            if operation == "append" and kind == "refused":
                self._refused_s = time.monotonic()
            raise StoreUnavailable(kind=kind) from error
        else:
            self._failures.succeeded(CALLS[operation])
        finally:
            if self._observe:
                self._observe(operation, time.perf_counter() - started_s)

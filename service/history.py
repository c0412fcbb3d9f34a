"""The port to the store: what happened to each user, in Redis or Valkey. history.lua beside it maps the keys.

It knows ids, never a model's indexes. Nothing of redis-py passes this module: every failure is StoreUnavailable.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from importlib.resources import files
from typing import Any, Final, Literal

import orjson
from redis.asyncio import Redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from model.contract.behaviour import Events
from service.durability import SAFE, Durability, DurabilityGuard, judge_persistence, judge_settings
from service.errors import StoreNotDurable, StoreUnavailable
from service.event import Event
from service.keys import KEY_COUNT, PREFIX, digest_user, name_keys
from service.pipe import Command, Pipe

EVENTS_PER_CALL: Final = 200
"""A script blocks the server while it runs: a user's events go in portions of this size."""

FIELDS: Final = 5
"""How many words an entry has (event.py)."""

ENTRIES_PER_SCAN: Final = 1000
"""How many entries of the log are looked through at a time for those of an erased user."""

ERASE_TIMEOUT_S: Final = 30.0
"""To erase is to look through a whole partition of the log; each step is bounded by its connection."""

Operation = Literal["append", "read", "export", "erase", "ping", "inspect"]
OPERATIONS: Final[tuple[Operation, ...]] = ("append", "read", "export", "erase", "ping", "inspect")
ErrorKind = Literal["connection", "timeout", "refused", "unsafe", "script"]
ERROR_KINDS: Final[tuple[ErrorKind, ...]] = ("connection", "timeout", "refused", "unsafe", "script")
"""No connection, no answer in time, a server that will not (full, read-only, loading, no permission), one that may lose
events (durability.py), all else."""

_REFUSALS = (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    NoPermissionError,
)
"""What redis-py raises while it opens a connection."""
_REFUSAL_CODES = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOPERM", "NOREPLICAS", "OOM", "READONLY")
_NO_SCRIPT = "NOSCRIPT"
_LOOK: Final[tuple[Command, ...]] = (("INFO", "persistence"), ("CONFIG", "GET", *SAFE))

Call = list[str | bytes | int]
"""The keys and arguments of one run of a script."""

DAY_MS: Final = 24 * 60 * 60 * 1000


class Outcome(IntEnum):
    """What became of an event, as history.lua numbers it.

    Late is accepted too, but too old to be remembered. Erased is not stored: it happened before its user was erased.
    """

    ACCEPTED = 0
    LATE = 1
    DUPLICATE = 2
    CONFLICT = 3
    ERASED = 4


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of each event in the order given, and the new version of every user named."""

    outcomes: list[Outcome]
    versions: dict[str, int]


@dataclass(frozen=True, slots=True)
class History:
    """A user's whole remembered history, oldest first. It reflects the first `version` accepted events at least."""

    version: int
    item_ids: list[str]
    last_event_at_ms: int | None
    words: Sequence[str] = field(default=(), compare=False, repr=False)
    """All fields of all entries, FIELDS for each; empty where only the items are known."""

    def recall(self) -> Events:
        """What came with each item."""
        times, types, values = (self.words[field::FIELDS] for field in (0, 2, 3))
        return Events(types, [None if value == "-" else float(value) for value in values], list(map(int, times)))


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One remembered event."""

    event_id: str
    item_id: str
    type: str
    value: float | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class StoreState:
    """What the server says of itself."""

    durable: bool
    """Whether it keeps what it acknowledges, by its settings. Those that it keeps to itself are taken for unsafe."""
    memory_bytes: int
    memory_limit_bytes: int
    """0: none."""


@dataclass(frozen=True, slots=True)
class _Script:
    """A Lua script and the name by which the server runs it."""

    text: bytes
    sha: str


def _read_script(name: str) -> _Script:
    text = files(__package__).joinpath(name).read_bytes()
    return _Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


_APPEND = _read_script("history.lua")
_ERASE = _read_script("erase.lua")


class HistoryStore:
    """Appends events and reads histories, each in one round trip.

    With `durability` strict, a store that may lose events gets none: StoreNotDurable; reads go on. `observe` is told
    the seconds of every operation, `on_error` the kind of every failure. Marks against duplicates are
    forgotten when a user has more than `marks_kept` of them and they are older than `marks_age_ms`, and with the whole
    history when the user was idle for `idle_ms`, or up to a tenth less.
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
        observe: Callable[[Operation, float], None] | None = None,
        on_error: Callable[[ErrorKind], None] | None = None,
    ) -> None:
        if history_length < 1:
            raise ValueError("history_length starts at 1")
        if "{" in prefix or "}" in prefix:
            raise ValueError("braces in the prefix would steer the cluster slot")
        self._client = client
        self._pipe = Pipe(client.connection_pool)
        self._history_length = history_length
        self._prefix = prefix
        self._limits = (history_length, marks_kept, marks_age_ms, idle_ms)
        self._read_timeout_s = read_timeout_s
        self._write_timeout_s = write_timeout_s
        self._guard = DurabilityGuard(durability)
        self._observe = observe
        self._on_error = on_error

    @property
    def durable(self) -> bool:
        """Whether the store kept what it acknowledges when it was last looked at."""
        return self._guard.known_safe

    async def append(self, events: Sequence[Event]) -> Appended:
        """Store events, each user's in the order given. When it returns, all are in the log and in the histories.

        Raises StoreUnavailable when any of it failed. Some may be stored then: to append the same events again is safe.
        """
        calls = list(self._plan_calls(events))
        async with self._boundary("append", self._write_timeout_s):
            await self._require_safety()
            replies = await self._run_scripts(_APPEND, [arguments for _, arguments in calls])
        outcomes: list[Outcome] = [Outcome.CONFLICT] * len(events)
        versions: dict[str, int] = {}
        for (indexes, _), (version, *results) in zip(calls, replies, strict=True):
            versions[events[indexes[0]].user_id] = version
            for index, result in zip(indexes, results, strict=True):
                outcomes[index] = Outcome(result)
        return Appended(outcomes, versions)

    async def read_many(self, user_ids: Sequence[str], *, within_s: float = math.inf) -> list[History]:
        """The histories of users, in the order given, empty for those unknown. One round trip.

        Takes `within_s` seconds at most, if that is less than every read may take.
        """
        histories = {}
        async with self._boundary("read", min(self._read_timeout_s, within_s)):
            for user_id, version, entries in await self._fetch(dict.fromkeys(user_ids)):
                words = _split(entries)
                last_event_at_ms = int(words[-FIELDS]) if words else None
                histories[user_id] = History(version, words[1::FIELDS], last_event_at_ms, words)
        return [histories[user_id] for user_id in user_ids]

    async def export(self, user_id: str) -> tuple[int, list[StoredEvent]]:
        """The version and every remembered event of a user, oldest first."""
        async with self._boundary("export", self._read_timeout_s):
            [(_, version, entries)] = await self._fetch([user_id])
            columns = [iter(_split(entries))] * FIELDS
            return version, [
                StoredEvent(event_id, item_id, kind, None if value == "-" else float(value), int(timestamp_ms))
                for timestamp_ms, item_id, kind, value, event_id in zip(*columns, strict=True)
            ]

    async def erase(self, user_id: str) -> None:
        """Forget a user: history, marks, the log's entries. Events up to now are rejected from here on.

        Raises StoreUnavailable when any of it failed; to erase again is safe. What is archived is the archiver's.
        """
        keys = name_keys(user_id, prefix=self._prefix)
        async with self._boundary("erase", ERASE_TIMEOUT_S):
            await self._require_safety()
            [last] = await self._run_scripts(_ERASE, [[*keys, digest_user(user_id)]])
            after = "-"
            while after:
                async with asyncio.timeout(self._write_timeout_s):
                    after = await self._erase_entries(keys.log, user_id, after, last)

    async def _erase_entries(self, log: str, user_id: str, start: str, last: bytes) -> str:
        """Delete a user's entries among the next ENTRIES_PER_SCAN of a log. Where to go on; empty at the end."""
        [entries] = await self._pipe.ask([("XRANGE", log, start, last, "COUNT", ENTRIES_PER_SCAN)])
        _raise_first([entries])
        mine = [entry_id for entry_id, (_, record) in entries if orjson.loads(record)["user_id"] == user_id]
        if mine:
            _raise_first(await self._ask_safely([("XDEL", log, *mine)]))
            self._guard.require()
        return f"({entries[-1][0].decode()}" if len(entries) == ENTRIES_PER_SCAN else ""

    async def _require_safety(self) -> None:
        if self._guard.wants_look:
            await self._look()
        self._guard.require()

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the store answers; look at its settings on the way."""
        async with self._boundary("ping", self._read_timeout_s):
            await self._look(("PING",))

    async def inspect(self) -> StoreState:
        """The memory and the safety of the store."""
        async with self._boundary("inspect", self._read_timeout_s):
            [reply] = await self._look(("INFO", "memory"))
            info = _read_info(reply)
            return StoreState(
                durable=self.durable,
                memory_bytes=int(info["used_memory"]),
                memory_limit_bytes=int(info.get("maxmemory", 0)),  # not every server has one
            )

    async def close(self) -> None:
        """Close every connection."""
        await self._pipe.close()
        await self._client.aclose()

    def _plan_calls(self, events: Sequence[Event]) -> Iterable[tuple[list[int], Call]]:
        """Portion events into script calls: the indexes of each call's events, and its keys and arguments."""
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

    async def _look(self, *commands: Command) -> list[Any]:
        """Look whether the store is safe, in one round trip with commands, if there are some. Their replies."""
        *replies, persistence, settings = await self._pipe.ask([*commands, *_LOOK])
        _raise_first([*replies, persistence])  # settings may be refused: they are not known then
        doubts = {} if self.durable else judge_persistence(_read_info(persistence))
        self._guard.see({**judge_settings(_read_settings(settings)), **doubts})
        return replies

    async def _run_scripts(self, script: _Script, calls: list[Call]) -> list[Any]:
        """Run a script once for each call, in order, in one round trip, or two when the server does not know it."""
        commands: list[Command] = [("EVALSHA", script.sha, KEY_COUNT, *call) for call in calls]
        replies = await self._ask_safely(commands)
        unknown = [index for index, reply in enumerate(replies) if _is_unknown_script(reply)]
        if unknown:  # the server's script cache is volatile; a call that found no script wrote nothing
            again = [("SCRIPT", "LOAD", script.text), *(commands[index] for index in unknown)]
            for index, reply in zip(unknown, (await self._ask_safely(again))[1:], strict=True):
                replies[index] = reply
        _raise_first(replies)
        self._guard.require()
        return replies

    async def _ask_safely(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to commands that write, followed by a look at the store's settings if it must be safe."""
        if not self._guard.strict:
            return await self._pipe.ask(commands)
        *replies, settings = await self._pipe.ask([*commands, _LOOK[-1]])
        failed = any(isinstance(reply, RedisError) and not _is_unknown_script(reply) for reply in replies)
        # Of a server that answers nobody nothing is learnt. To find it safe again takes a look of its own.
        if not failed and (faults := judge_settings(_read_settings(settings))):
            self._guard.see(faults)
        return replies

    async def _fetch(self, user_ids: Collection[str]) -> list[tuple[str, int, list[bytes]]]:
        """The id, version and entries of each user."""
        commands: list[Command] = []
        for user_id in user_ids:
            keys = name_keys(user_id, prefix=self._prefix)
            # The version first: what is appended in between is in the list, so that it only can be too low.
            commands += (("GET", keys.version), ("LRANGE", keys.history, -self._history_length, -1))
        replies = await self._pipe.ask(commands)
        _raise_first(replies)
        found = zip(user_ids, replies[::2], replies[1::2], strict=True)
        return [(user_id, int(version or 0), entries) for user_id, version, entries in found]

    @asynccontextmanager
    async def _boundary(self, operation: Operation, timeout_s: float) -> AsyncIterator[None]:
        """Measure an operation, bound its time, and turn whatever goes wrong with the store into StoreUnavailable."""
        started_s = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except StoreNotDurable:
            if self._on_error:
                self._on_error("unsafe")
            raise
        except (RedisError, OSError, ValueError) as error:  # ValueError: what comes is not what we wrote
            kind = _classify(error)
            if self._on_error:
                self._on_error(kind)
            raise StoreUnavailable(kind=kind) from error
        finally:
            if self._observe:
                self._observe(operation, time.perf_counter() - started_s)


def _raise_first(replies: Iterable[Any]) -> None:
    for reply in replies:
        if isinstance(reply, RedisError):
            raise reply


def _is_unknown_script(reply: object) -> bool:
    return isinstance(reply, ResponseError) and str(reply).startswith(_NO_SCRIPT)


def _read_info(reply: bytes) -> dict[str, str]:
    lines = reply.decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)  # others are headings


def _read_settings(reply: object) -> object:
    """The answer to CONFIG GET, or the error in its place."""
    if not isinstance(reply, list):
        return reply
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _split(entries: list[bytes]) -> list[str]:
    """The words of all entries in one go, FIELDS for each: the fastest that Python has."""
    if not entries:
        return []
    words = b" ".join(entries).decode("ascii", "replace").split(" ")
    if len(words) != FIELDS * len(entries):
        raise ValueError("an entry has not five words")
    return words


def _classify(error: BaseException) -> ErrorKind:
    if isinstance(error.__cause__, AuthenticationError):
        error = error.__cause__  # which redis-py takes for a failure to connect
    if isinstance(error, TimeoutError | RedisTimeoutError):
        return "timeout"
    if isinstance(error, _REFUSALS) or (isinstance(error, ResponseError) and str(error).startswith(_REFUSAL_CODES)):
        return "refused"
    if isinstance(error, RedisConnectionError | OSError):
        return "connection"
    return "script"

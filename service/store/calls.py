"""What all operations on the store share: the connection, time limits, safety, and what becomes of a failure."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from redis.asyncio import Redis

from service.errors import StoreNotDurable, StoreUnavailable
from service.settings import Durability
from service.store.circuit_breaker import PATIENCE_S
from service.store.durability import DurabilityGuard, check_mode, check_persistence, check_settings
from service.store.failures import ErrorKind, FailureLog, classify
from service.store.multiplexer import Command, Multiplexer
from service.store.operations import CALLS, Operation
from service.store.redis_keys import LOST_EVENTS
from service.store.replies import raise_first
from service.store.scripts import READ_SETTINGS, ScriptRunner
from service.store.status import StateLog, find_refusal, measure_skew, read_info, read_settings

REFUSED_S: Final = 10.0
"""How long after a refused append the store counts as refusing events, unless an append succeeds."""

_STATE_COMMANDS: Final[tuple[Command, ...]] = (("GET", LOST_EVENTS), ("INFO",), READ_SETTINGS)


class StoreCalls:
    """The way to one store. `observe` gets the seconds of every operation, `on_error` the kind of every failure.

    Failures are logged, too. With `durability` strict, writes to a store that may lose them raise StoreNotDurable.
    """

    def __init__(
        self,
        client: Redis,
        *,
        prefix: str,
        read_timeout_s: float,
        write_timeout_s: float,
        durability: Durability,
        observe: Callable[[Operation, float], None] | None,
        on_error: Callable[[ErrorKind], None] | None,
    ) -> None:
        self._client = client
        self.prefix = prefix
        self.read_timeout_s = read_timeout_s
        self.write_timeout_s = write_timeout_s
        self.multiplexer = Multiplexer(client.connection_pool)
        self.guard = DurabilityGuard(durability)
        self.scripts = ScriptRunner(self.multiplexer, self.guard)
        self.failures = FailureLog()
        self.lost_events = 0
        """How many events the embedded store had lost at the last check."""
        self._state_log = StateLog()
        self._refused_s = float("-inf")
        self._observe = observe
        self._on_error = on_error

    @property
    def durable(self) -> bool:
        """Whether the store's settings were safe at the last check."""
        return self.guard.known_safe

    @property
    def refuses_events(self) -> bool:
        """Whether the store refused events at the last append or check."""
        return self._state_log.refusal is not None or time.monotonic() - self._refused_s < REFUSED_S

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the store answers. Checks its settings and state, too."""
        async with self.boundary("ping", self.read_timeout_s):
            await self.check_store(("PING",))

    async def require_safety(self) -> None:
        """Check the store where that is due. Raises StoreNotDurable unless it keeps what it acknowledges."""
        if self.guard.needs_check:
            await self.check_store()
        self.guard.require()

    async def check_store(self, *commands: Command) -> tuple[dict[str, str], float | None]:
        """Check the store, in one round trip with other commands. Returns INFO, and how far its clock is ahead."""
        asked_s = time.time()
        *replies, lost, told, settings = await self.multiplexer.ask([*commands, *_STATE_COMMANDS])
        answered_s = time.time()
        raise_first([*replies, told])  # a refused settings query counts as unsafe
        # Only the embedded store records lost events: others may refuse the query.
        self.lost_events = int(lost) if isinstance(lost, bytes) and lost.isdigit() else 0
        info = read_info(told)
        unproven = {} if self.durable else check_persistence(info)
        self.guard.update({**check_settings(read_settings(settings)), **check_mode(info), **unproven})
        self._state_log.update_refusal(find_refusal(info))
        skew_s = measure_skew(info, asked_s=asked_s, answered_s=answered_s)
        self._state_log.update_skew(skew_s)
        return info, skew_s

    async def close(self) -> None:
        """End all connections."""
        await self.multiplexer.close()
        await self._client.aclose()

    def note_accepted(self) -> None:
        """The store took events: it refuses them no more."""
        self._refused_s = float("-inf")

    def count_error(self, kind: ErrorKind) -> None:
        """Count a failure."""
        if self._on_error:
            self._on_error(kind)

    def boundary(self, operation: Operation, timeout_s: float) -> "Boundary":
        """Measure an operation, limit its time, and turn any failure into StoreUnavailable: `async with`."""
        return Boundary(self, operation, timeout_s)

    def failed(self, operation: Operation, error: Exception, timeout_s: float) -> StoreUnavailable:
        """Count and log the failure of an operation. Returns what callers get for it."""
        kind = classify(error)
        self.count_error(kind)
        if kind != "timeout" or timeout_s >= PATIENCE_S:  # else its own time limit was too short to judge the store
            self.failures.failed(CALLS[operation], error, kind=kind)
        if operation == "append" and kind == "refused":
            self._refused_s = time.monotonic()
        return StoreUnavailable(kind=kind)

    def observe(self, operation: Operation, seconds: float) -> None:
        """Pass on how long an operation took, however it ended."""
        if self._observe:
            self._observe(operation, seconds)


class Boundary:
    """Around one operation on the store. Each answer has one, and a generator would take three times as long."""

    __slots__ = ("_calls", "_operation", "_started_s", "_time_limit", "_timeout_s")

    def __init__(self, calls: StoreCalls, operation: Operation, timeout_s: float) -> None:
        self._calls = calls
        self._operation = operation
        self._timeout_s = timeout_s

    async def __aenter__(self) -> None:
        self._started_s = time.perf_counter()
        self._time_limit = asyncio.timeout(self._timeout_s)
        await self._time_limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        calls = self._calls
        try:
            try:
                await self._time_limit.__aexit__(kind, error, trace)
            except TimeoutError as late:
                error = late
            if error is None:
                calls.failures.succeeded(CALLS[self._operation])
            elif isinstance(error, StoreNotDurable):
                calls.count_error("unsafe")
            elif isinstance(error, Exception) and not isinstance(error, StoreUnavailable):  # that: of one user, logged
                # Clients see any failure of the store as 503; the log has the details.
                raise calls.failed(self._operation, error, self._timeout_s) from error
        finally:
            calls.observe(self._operation, time.perf_counter() - self._started_s)

"""A connection multiplexer: concurrent callers share one connection to the store, with replies in command order.

redis-py opens the connection, with TLS, user, password and database. After that only hiredis parses it: redis-py's own
pipelines take four times as long, and most answers need the store (docs/lab/2026-11-21-path-of-a-request.md).
"""

import asyncio
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hiredis import ProtocolError, Reader, pack_command
from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

Command = tuple[str | bytes | int, ...]

OVERDUE_S: Final = 0.25
"""A connection whose oldest reply is overdue by this gets no more commands; the next ones open another."""
RETIRED_S: Final = 5.0
"""How long a replaced connection may still deliver pending replies."""
MAX_REPLY_BYTES: Final = 16 * 2**20
"""Maximum size of a reply: four times the largest expected one, 10,000 events with the longest ids."""

_HUGE_ARRAY: Final = re.compile(rb"\n[*%~>|][0-9]{6}")
"""The header of an array of 100,000 or more elements. No command has such a reply, and hiredis allocates what a header
announces. A string's first line may look the same, but then it follows the string's own header."""
_HUGE_ARRAY_BYTES: Final = 8
_STRING_HEAD: Final = re.compile(rb"\$[0-9]+\r\n")  # $-1 is nil, and no string follows
_TAIL_BYTES: Final = 24
"""How many earlier bytes to search again: a string's header and its content may arrive separately."""

_INCOMPLETE: Final = object()
"""hiredis' result while a reply is incomplete."""


class ReplyTooLong(RedisConnectionError):
    """A reply exceeds MAX_REPLY_BYTES: the caller asked for too much at once."""


class Multiplexer:
    """Sends commands to the server of a redis-py pool. It connects on demand and never repeats a command."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._current: _Connection | None = None
        self._connections: set[_Connection] = set()
        """All open connections, including retired ones."""
        self._opening: asyncio.Task[_Connection] | None = None

    async def ask(self, commands: Iterable[Command]) -> list[Any]:
        """The replies to some commands, in order and undecoded. Error replies are returned as ResponseError.

        Raises OSError or a RedisError if there is no connection, if it ends before all replies arrived, or if the
        server sends an invalid reply.
        """
        packed = [pack_command(command) for command in commands]  # type: ignore[arg-type]  # its stub wants one word
        if not packed:
            return []
        connection = self._current
        if connection is None or not connection.usable:
            connection = await self._open()
            if not connection.usable:  # full servers, and load balancers without servers, accept and close at once
                raise connection.make_failure()
        return await connection.ask(packed)

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        for connection in [*self._connections]:
            connection.close()
            await connection.closed

    async def _open(self) -> "_Connection":
        """A new connection, shared by all callers that wait for it."""
        if self._opening is None:
            if self._current is not None:
                self._current.retire()
                self._current = None
            self._opening = asyncio.create_task(_open_connection(self._pool))
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)  # one caller's cancellation must not affect the others

    def _opened(self, opening: asyncio.Task["_Connection"]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._current = connection = opening.result()
            self._connections.add(connection)
            connection.closed.add_done_callback(lambda _: self._connections.discard(connection))


async def _open_connection(pool: ConnectionPool) -> "_Connection":
    redis_connection = pool.make_connection()  # type: ignore[no-untyped-call]  # the library leaves it untyped
    await redis_connection.connect()
    # redis-py has no API to hand over a connection; test_multiplexer.py notices changes of an upgrade.
    reader: asyncio.StreamReader = redis_connection._reader  # noqa: SLF001 - as said
    writer: asyncio.StreamWriter = redis_connection._writer  # noqa: SLF001 - as said
    redis_connection._reader = redis_connection._writer = None  # noqa: SLF001 - or it would close what is ours when it is collected
    connection = _Connection(writer)
    if writer.transport.is_closing():  # the reader saw its end, which is not signalled twice
        raise connection.make_failure()
    writer.transport.set_protocol(connection)
    ended = reader.at_eof()
    reader.feed_eof()
    early = await reader.read()  # bytes that arrived before the handover
    if early:
        connection.data_received(early)
    if ended:
        connection.close()
    return connection


@dataclass(slots=True)
class _PendingReplies:
    """The pending replies of one caller."""

    answer: asyncio.Future[list[Any]]
    count: int
    since_s: float
    replies: list[Any] = field(default_factory=list)


class _Connection(asyncio.Protocol):
    """One open connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer  # kept: it closes its transport when it is collected
        self._transport = writer.transport
        self._loop = asyncio.get_running_loop()
        self._reader = Reader(replyError=ResponseError, notEnoughData=_INCOMPLETE)
        self._pending: deque[_PendingReplies] = deque()
        self._retired = False
        self._tail = b"\n"
        self._unread_bytes = 0
        """Bytes since the last complete reply."""
        self._failure: RedisError = RedisConnectionError("the connection to the store ended")
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def usable(self) -> bool:
        """Whether it is open and no reply is overdue."""
        if self._transport.is_closing():
            return False
        return not self._pending or self._loop.time() - self._pending[0].since_s < OVERDUE_S

    def make_failure(self) -> RedisError:
        """A new exception that says why it cannot be used."""
        return type(self._failure)(*self._failure.args)

    def ask(self, packed: Sequence[bytes]) -> asyncio.Future[list[Any]]:
        """Send packed commands now. Returns a future of their replies."""
        answer = self._loop.create_future()
        self._transport.write(b"".join(packed))
        self._pending.append(_PendingReplies(answer, len(packed), self._loop.time()))
        return answer

    def retire(self) -> None:
        """Close once the pending replies have arrived, or after RETIRED_S."""
        self._retired = True
        if self._pending:
            self._loop.call_later(RETIRED_S, self.close)
        else:
            self.close()

    def close(self) -> None:
        """Close; pending replies fail."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass replies to their callers.

        Unrequested data closes the connection: it would be taken for the reply to the next command.
        """
        window = self._tail + data
        if _announces_too_much(window, start=len(self._tail) - _HUGE_ARRAY_BYTES + 1):
            self._fail(RedisConnectionError("the store announced an array that is too long"))
            return
        self._tail = window[-_TAIL_BYTES:]
        self._unread_bytes += len(data)
        try:
            self._reader.feed(data)
            while self._pending and self._collect(self._pending[0]):
                pending = self._pending.popleft()
                if not pending.answer.done():  # else the caller was cancelled
                    pending.answer.set_result(pending.replies)
            if self._unread_bytes > MAX_REPLY_BYTES:
                self._fail(ReplyTooLong("the store sent a reply that is too long"))
            elif not self._pending and self._reader.has_data():
                unasked = self._reader.gets()
                refused = isinstance(unasked, ResponseError)  # from a server at its client limit
                self._fail(unasked if refused else RedisConnectionError("the store sent an unrequested reply"))
        except ProtocolError:
            self._fail(RedisConnectionError("the store sent an invalid reply"))
        if self._retired and not self._pending:
            self.close()

    def _fail(self, failure: RedisError) -> None:
        self._failure = failure
        self.close()

    def _collect(self, pending: _PendingReplies) -> bool:
        """Whether all replies of a caller have arrived."""
        while len(pending.replies) < pending.count:
            reply = self._reader.gets()
            if reply is _INCOMPLETE:
                return False
            self._unread_bytes = 0
            pending.replies.append(reply)
        return True

    def connection_lost(self, _exc: Exception | None) -> None:
        """Fail all waiting callers: whether their commands were executed is unknown."""
        for pending in self._pending:
            if not pending.answer.done():
                pending.answer.set_exception(self.make_failure())
        self._pending.clear()
        self.closed.set_result(None)


def _announces_too_much(window: bytes, *, start: int) -> bool:
    """Whether the header of a huge array begins at `start` or later."""
    found = _HUGE_ARRAY.search(window, start)
    while found is not None:
        head = found.start()
        before = window.rfind(b"\n", 0, head) + 1
        if not _STRING_HEAD.match(window, before):
            return True
        found = _HUGE_ARRAY.search(window, found.end())
    return False

"""Commands to the store on one connection: whoever asks writes at once, and replies come in the order of the commands.

redis-py opens the connection, with TLS, user, password and database. What follows is read by hiredis alone: redis-py's
own pipelines take four times as long, and the store is asked on the way to every answer (docs/experiments.md).
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hiredis import ProtocolError, Reader, pack_command
from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

Command = tuple[str | bytes | int, ...]

OVERDUE_S: Final = 0.25
"""A connection that owes a reply for so long gets no more commands: the next ones try another."""
RETIRED_S: Final = 5.0
"""How long it may still bring the replies that it owes."""

_MORE: Final = object()
"""What hiredis gives while a reply is not complete."""


class Pipe:
    """Asks the server of a redis-py pool. Connects when it is needed, and never repeats a command."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._line: _Line | None = None
        self._lines: set[_Line] = set()
        """All that are open, those that are used no more included."""
        self._opening: asyncio.Task[_Line] | None = None

    async def ask(self, commands: Iterable[Command]) -> list[Any]:
        """The replies to some commands, in order and undecoded; an error reply is a ResponseError among them.

        Raises OSError or a RedisError when there is no connection, or it ends before all replies came.
        """
        packed = [pack_command(command) for command in commands]  # type: ignore[arg-type]  # its stub wants one word
        if not packed:
            return []
        line = self._line
        if line is None or not line.usable:
            line = await self._open()
        return await line.ask(packed)

    async def close(self) -> None:
        """End every connection."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        for line in [*self._lines]:
            line.close()
            await line.closed

    async def _open(self) -> "_Line":
        """A new connection, the same one for all who wait for it."""
        if self._opening is None:
            if self._line is not None:
                self._line.retire()
                self._line = None
            self._opening = asyncio.create_task(_open_line(self._pool))
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)  # who gives up takes it from nobody else

    def _opened(self, opening: asyncio.Task["_Line"]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._line = line = opening.result()
            self._lines.add(line)
            line.closed.add_done_callback(lambda _: self._lines.discard(line))


async def _open_line(pool: ConnectionPool) -> "_Line":
    connection = pool.make_connection()  # type: ignore[no-untyped-call]  # the library leaves it untyped
    await connection.connect()
    # redis-py has no way to hand over a connection; tests/serving/test_pipe.py notices what an upgrade changes.
    writer: asyncio.StreamWriter = connection._writer  # noqa: SLF001 - as said
    connection._reader = connection._writer = None  # noqa: SLF001 - or it would close what is ours when it is collected
    line = _Line(writer)
    writer.transport.set_protocol(line)
    return line


@dataclass(slots=True)
class _Owed:
    """The replies to the commands of one caller."""

    answer: asyncio.Future[list[Any]]
    count: int
    since_s: float
    replies: list[Any] = field(default_factory=list)


class _Line(asyncio.Protocol):
    """One open connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer  # kept, since it closes its transport when it is collected
        self._transport = writer.transport
        self._loop = asyncio.get_running_loop()
        self._reader = Reader(replyError=ResponseError, notEnoughData=_MORE)
        self._owed: deque[_Owed] = deque()
        self._retired = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def usable(self) -> bool:
        """Whether it is open, and owes no reply for long."""
        if self._transport.is_closing():
            return False
        return not self._owed or self._loop.time() - self._owed[0].since_s < OVERDUE_S

    def ask(self, packed: Sequence[bytes]) -> asyncio.Future[list[Any]]:
        """The replies to as many packed commands, which leave now."""
        answer = self._loop.create_future()
        self._owed.append(_Owed(answer, len(packed), self._loop.time()))
        self._transport.write(b"".join(packed))
        return answer

    def retire(self) -> None:
        """Close when the replies that are owed have come, or when it has taken too long."""
        self._retired = True
        if self._owed:
            self._loop.call_later(RETIRED_S, self.close)
        else:
            self.close()

    def close(self) -> None:
        """End it; what is owed fails."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand replies to those who wait for them."""
        self._reader.feed(data)
        try:
            while self._owed and self._collect(self._owed[0]):
                owed = self._owed.popleft()
                if not owed.answer.done():  # else nobody waits any more
                    owed.answer.set_result(owed.replies)
        except ProtocolError:
            self.close()
        if self._retired and not self._owed:
            self.close()

    def _collect(self, owed: _Owed) -> bool:
        """Whether all replies of a caller have come."""
        while len(owed.replies) < owed.count:
            reply = self._reader.gets()
            if reply is _MORE:
                return False
            owed.replies.append(reply)
        return True

    def connection_lost(self, _exc: Exception | None) -> None:
        """Tell all who wait: whether their commands were carried out is not known."""
        for owed in self._owed:
            if not owed.answer.done():
                owed.answer.set_exception(RedisConnectionError("the connection to the store ended"))
        self._owed.clear()
        self.closed.set_result(None)

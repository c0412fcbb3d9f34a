"""A proxy between the service and its store that fails on request: slow, replies lost, connections reset, a black hole.

It knows nothing of the protocol. A connection that lost anything carries nothing more: what came later would be taken
for the reply that was lost.
"""

import asyncio
import contextlib
import random
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong from now on, for connections that exist as well. Shares are of chunks, which are calls mostly."""

    delay_s: float = 0.0
    """Every reply is held back so long."""
    lost_replies: float = 0.0
    """Share of replies that are dropped after the store did its work; the connection ends."""
    resets: float = 0.0
    """Share of requests at which the connection ends before the store sees them."""
    closes: bool = False
    """Every connection is accepted and closed at once, as by a balancer without a server; others end when used."""
    black_hole: bool = False
    """Everything is swallowed and nothing ends: only the caller's own limit of time can help."""


NO_FAULTS = Faults()


class Proxy:
    """A TCP line to a store on a unix socket; assign `faults` at any time. Use it as a context."""

    def __init__(self, store_url: str, *, seed: int = 0) -> None:
        self._target = store_url.removeprefix("unix://")
        self._random = random.Random(seed)  # noqa: S311 - faults, no secrets
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.faults = NO_FAULTS
        self.failed = 0
        """How many chunks were not delivered."""
        self.connections = 0
        """How many connections were taken."""
        self.url = ""
        """Where a client of the store finds the proxy, once it listens."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        await self.hang_up()

    async def hang_up(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a connection is served in a task of its own")
        self._connections.add(task)
        self.connections += 1
        writers = [writer]
        try:
            if self.faults.closes:
                self.failed += 1
                return
            # A store that is down looks the same through the proxy: connected, and closed at once.
            store_reader, store_writer = await asyncio.open_unix_connection(self._target)
            writers.append(store_writer)
            ways = [self._forward(reader, store_writer), self._return(store_reader, writer)]
            _, other = await asyncio.wait(map(asyncio.ensure_future, ways), return_when=asyncio.FIRST_COMPLETED)
            for way in other:
                way.cancel()
            await asyncio.gather(*other, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # the end of a connection, whoever ended it, and of this task with it
        finally:
            for end in writers:
                end.transport.abort()
            self._connections.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if self.faults.black_hole:
                    await self._swallow(reader)
                    return
                if self.faults.closes or self._random.random() < self.faults.resets:
                    self.failed += 1
                    return
                writer.write(chunk)
                await writer.drain()

    async def _return(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if self.faults.black_hole:
                    await self._swallow(reader)
                    return
                if self._random.random() < self.faults.lost_replies:
                    self.failed += 1
                    return
                if self.faults.delay_s:
                    await asyncio.sleep(self.faults.delay_s)
                writer.write(chunk)
                await writer.drain()

    async def _swallow(self, reader: asyncio.StreamReader) -> None:
        self.failed += 1
        while await reader.read(_CHUNK_BYTES):
            pass

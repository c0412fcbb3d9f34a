"""uvicorn's servers with what ours need: a watchdog, a drain before the end, and reports to a supervisor."""

import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from service.http.protocol import LimitedProtocol
from service.process.watchdog import Watchdog
from service.process.worker import DRAIN, FINISH_LIMIT_S, RETIRE, Heartbeat
from service.settings import Settings

if TYPE_CHECKING:  # importing it imports prometheus_client, which reads the environment at import
    from starlette.types import ASGIApp

    from service.health import Health

HANG_LIMIT_S = 7.0
"""A worker whose event loop is blocked for this long ends itself, and the supervisor starts another."""
HANG_LIMIT_ALONE_S = 20.0
"""The same for the only worker. Longer, because its end is an outage until the service is restarted."""

BACKLOG = 2048


class WatchedServer(uvicorn.Server):
    """A server with a watchdog: its process ends if its event loop hangs between start and shutdown."""

    def __init__(self, config: uvicorn.Config, watchdog: Watchdog) -> None:
        super().__init__(config)
        self._watchdog = watchdog

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept requests, and to watch the loop."""
        await super().startup(sockets)
        if self.started:
            self._watchdog.start()

    async def on_tick(self, counter: int) -> bool:
        """Tell the watchdog that the loop turns."""
        self._watchdog.beat()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop watching and accepting requests."""
        self._watchdog.stop()
        await super().shutdown(sockets)


class WorkerServer(WatchedServer):
    """One of several workers. It reports readiness and heartbeats to its supervisor."""

    def __init__(self, config: uvicorn.Config, heartbeat: Heartbeat, health: "Health") -> None:
        super().__init__(config, Watchdog(HANG_LIMIT_S))
        self._heartbeat = heartbeat
        self._health = health
        self._retired = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take the supervisor's signals, and tell it when requests are accepted."""
        signal.signal(DRAIN, lambda _number, _frame: self._health.drain())
        signal.signal(RETIRE, self._retire)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # once more: uvicorn has replaced the handler
        await super().startup(sockets)
        self._heartbeat.ready = self.started

    def _retire(self, _number: int, _frame: FrameType | None) -> None:
        self._health.retire()
        self._retired = True

    async def on_tick(self, counter: int) -> bool:
        """Tell the supervisor that the loop turns; once retired, accept no connection."""
        self._heartbeat.beats += 1
        if self._retired:
            for server in self.servers:  # the successor has the same sockets and accepts their connections
                server.close()
        return await super().on_tick(counter)


class DrainingServer(WatchedServer):
    """The only worker. It announces when it serves, and drains before it stops.

    On the first signal it reports that it is not ready, but answers for the drain delay. A second signal stops it at
    once.
    """

    def __init__(
        self, config: uvicorn.Config, announce: Callable[[], None], health: "Health", *, drain_delay_s: float
    ) -> None:
        super().__init__(config, Watchdog(HANG_LIMIT_ALONE_S))
        self._announce = announce
        self._health = health
        self._drain_delay_s = drain_delay_s
        self._stops_at_s: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain on the first signal; stop at once on the second."""
        super().handle_exit(sig, frame)
        if self._stops_at_s is None:
            # Not in shutdown(), which begins by closing the socket: nobody could see the state then.
            self._health.drain()
            self._stops_at_s = time.monotonic() + self._drain_delay_s
            self.should_exit = not self.started
        else:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Stop when the drain delay is over."""
        if self._stops_at_s is not None and time.monotonic() >= self._stops_at_s:
            self.should_exit = True
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept requests, and announce it."""
        await super().startup(sockets)
        if self.started:
            self._announce()


def configure(settings: Settings, app: "ASGIApp") -> uvicorn.Config:
    """The configuration of uvicorn, with our HTTP protocol and our log."""
    return uvicorn.Config(
        app,
        workers=settings.workers,
        loop="uvloop",
        http=LimitedProtocol,
        proxy_headers=False,  # the service does not use client addresses
        ws="none",
        lifespan="on",
        log_config=None,  # logs.py
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # handed on to the loop, which takes any
        backlog=BACKLOG,
        timeout_graceful_shutdown=int(FINISH_LIMIT_S),
    )

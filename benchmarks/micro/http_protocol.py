"""What the limits on the wire cost: microseconds of CPU a request, with uvicorn's protocol and with ours.

`python -m benchmarks.micro.http_protocol`; the best of seven turns of each, taken in turns, on a connection that leads
nowhere.
"""

import asyncio
import sys
import time

import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.http.protocol import LimitedProtocol

TURNS = 7
REQUESTS = 20_000
REQUEST = (
    b"POST /recommend HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nAccept: */*\r\nUser-Agent: benchmark\r\n"
    b'Content-Type: application/json\r\nContent-Length: 37\r\n\r\n{"user_id": "u1", "items": ["i0001"]}'
)


def main() -> int:
    best_us = uvloop.run(measure())
    print(", ".join(f"{kind.__name__}: {us:.1f} us a request" for kind, us in best_us.items()))  # noqa: T201 - the result
    return 0


async def measure() -> dict[type[HttpToolsProtocol], float]:
    """The CPU time of a request in microseconds, the application's next to nothing included."""
    turns: dict[type[HttpToolsProtocol], list[float]] = {HttpToolsProtocol: [], LimitedProtocol: []}
    for _ in range(TURNS):
        for kind, taken_us in turns.items():
            taken_us.append(await _take_turn(kind))
    return {kind: min(taken_us) for kind, taken_us in turns.items()}


async def _take_turn(kind: type[HttpToolsProtocol]) -> float:
    config = uvicorn.Config(_answer, http=kind, log_config=None, access_log=False)
    state = ServerState()
    protocol = kind(config, state, {})
    protocol.connection_made(_Nowhere())
    started = time.process_time()
    for sent in range(1, REQUESTS + 1):
        protocol.data_received(REQUEST)
        while state.total_requests < sent:  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(0)
    taken_s = time.process_time() - started
    protocol.connection_lost(None)
    return taken_s / REQUESTS * 1e6


async def _answer(_scope: Scope, receive: Receive, send: Send) -> None:
    """The least that an application can do."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})


class _Nowhere(asyncio.Transport):
    """A transport that takes everything and sends nothing."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...
    def close(self) -> None: ...
    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


if __name__ == "__main__":
    sys.exit(main())

"""Load in an open loop: requests leave by a schedule, however slow the answers are, and latency counts from it.

A closed loop asks less when answers are slow, and so hides that they are. One process of this sends some thousand small
requests a second; `late` in its report says how far it fell behind its own schedule, and whether to believe the rest.

`python -m benchmarks.harness.open_loop http://127.0.0.1:8000 --rate 200 --seconds 10 --body '{"user_id": "1"}'`
"""

import argparse
import asyncio
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

IDLE_LIMIT_S = 2.0
"""Services end idle connections; uvicorn does after 5 s."""

_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_SOURCE = re.compile(rb'"source":"(\w+)","degraded":(?:null|"(\w+)")')


@dataclass(frozen=True, slots=True)
class Shot:
    """One request, `at_s` seconds after the start; `label` says what it belongs to."""

    at_s: float
    payload: bytes
    label: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a shot. Times are seconds since it was due."""

    label: str
    at_s: float
    late_s: float
    """When it was really sent."""
    latency_s: float
    status: int
    """0: the connection was refused, or ended without an answer."""
    source: str
    """Of an answer of /recommend, else empty."""
    degraded: str
    fault: str = ""
    """What is wrong with the answer's content, where somebody looks."""


def encode_post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def split_answer(received: bytes) -> tuple[bytes, bytes] | None:
    """Head and body of an HTTP answer; None as long as some of it is missing."""
    head, found, content = received.partition(b"\r\n\r\n")
    length = _CONTENT_LENGTH.search(head)
    return (head, content) if found and len(content) >= (int(length[1]) if length else 0) else None


def plan(payloads: Sequence[bytes], *, rate: float, seconds: float, label: str = "", seed: int = 0) -> Iterator[Shot]:
    """Payloads in turn, `rate` a second, at the random times of independent clients (a Poisson process)."""
    draw = random.Random(seed)  # noqa: S311 - a repeatable schedule
    at_s, number = 0.0, 0
    while (at_s := at_s + draw.expovariate(rate)) < seconds:
        yield Shot(at_s, payloads[number % len(payloads)], label)
        number += 1


async def fire(
    host: str,
    port: int | Callable[[], int],
    shots: Iterable[Shot],
    *,
    stop: asyncio.Event | None = None,
    find_fault: Callable[[bytes], str] = lambda _content: "",
) -> list[Outcome]:
    """Send each shot when it is due, until `stop` is set, and wait for all answers. Shots come in order of time.

    `find_fault` looks at the content of each answer with status 200. The port of a service that starts anew is asked
    for with every connection.
    """
    idle: list[_Connection] = []
    flying: set[asyncio.Task[None]] = set()
    outcomes: list[Outcome] = []
    began_s = time.perf_counter()

    async def send(shot: Shot) -> None:
        due_s = began_s + shot.at_s
        head, content, late_s = b"", b"", 0.0
        try:
            while idle and idle[-1].stale:
                idle.pop().close()
            connection = idle.pop() if idle else await _connect(host, port if isinstance(port, int) else port())
            late_s = time.perf_counter() - due_s
            head, content = await connection.ask(shot.payload)
        except OSError:
            pass
        else:
            if not connection.ended:
                connection.idle_since_s = time.perf_counter()
                idle.append(connection)
        found = _SOURCE.search(content)
        source, degraded = ((part or b"").decode() for part in found.groups()) if found else ("", "")
        latency_s = time.perf_counter() - due_s
        status = int(head[9:12] or 0)
        fault = find_fault(content) if status == 200 else ""
        outcomes.append(Outcome(shot.label, shot.at_s, late_s, latency_s, status, source, degraded, fault))

    for shot in shots:
        wait_s = began_s + shot.at_s - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        if stop is not None and stop.is_set():
            break
        task = asyncio.create_task(send(shot))
        flying.add(task)
        task.add_done_callback(flying.discard)
    if flying:
        await asyncio.wait(flying)
    for connection in idle:
        connection.close()
    return outcomes


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.ended = False
        self.idle_since_s = 0.0
        self._answer: asyncio.Future[tuple[bytes, bytes]] | None = None
        self._received = b""
        self._transport: asyncio.Transport | None = None

    @property
    def stale(self) -> bool:
        """Whether it ended, or was idle for so long that the other end may be about to end it."""
        return self.ended or time.perf_counter() - self.idle_since_s > IDLE_LIMIT_S

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of TCP
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc if isinstance(exc, OSError) else ConnectionResetError("no answer"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._answer is not None and (answer := split_answer(self._received)) is not None:
            self._received = b""
            if _CLOSE.search(answer[0]):
                self.close()
            self._answer.set_result(answer)

    def close(self) -> None:
        self.ended = True
        if self._transport is not None:
            self._transport.close()

    def ask(self, payload: bytes) -> asyncio.Future[tuple[bytes, bytes]]:
        """Head and body of the answer. Raises OSError when there is none."""
        self._answer = asyncio.get_running_loop().create_future()
        if self.ended or self._transport is None:
            self._answer.set_exception(ConnectionResetError("closed while idle"))
        else:
            self._transport.write(payload)
        return self._answer


async def _connect(host: str, port: int) -> _Connection:
    _, connection = await asyncio.get_running_loop().create_connection(_Connection, host, port)
    return connection


def percentile(values: Iterable[float], share: float) -> float:
    """The value that so great a share of them does not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def report(outcomes: Sequence[Outcome], *, seconds: float) -> str:
    """What came of it, kind by kind, in lines for people."""

    def write(words: str, chosen: Sequence[Outcome]) -> str:
        times = [outcome.latency_s for outcome in chosen]
        p50, p99, most = (percentile(times, share) * 1e3 for share in (0.5, 0.99, 1.0))
        return f"{words:<28}{len(chosen) / seconds:9.1f}/s   p50 {p50:8.1f}   p99 {p99:8.1f}   max {most:8.1f} ms"

    kinds = Counter((outcome.status, outcome.source, outcome.degraded) for outcome in outcomes)
    lines = [write("all", outcomes)]
    for kind, _ in kinds.most_common():
        chosen = [outcome for outcome in outcomes if (outcome.status, outcome.source, outcome.degraded) == kind]
        lines.append(write(" ".join(str(part) for part in kind if part) or "no answer", chosen))
    late_ms = percentile((outcome.late_s for outcome in outcomes), 0.99) * 1e3
    return "\n".join([*lines, f"late: p99 {late_ms:.1f} ms"])


def main() -> int:
    """Ask a service, and print the report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.harness.open_loop", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("url", help="http://HOST:PORT of the service")
    parser.add_argument("--rate", type=float, default=100, help="requests a second (default 100)")
    parser.add_argument("--seconds", type=float, default=10, help="how long (default 10)")
    parser.add_argument("--path", default="/recommend", help="route to ask (default /recommend)")
    parser.add_argument("--body", action="append", required=True, help="JSON to send; several take turns")
    given = parser.parse_args()
    url = urlsplit(given.url)
    if url.hostname is None or url.port is None:
        parser.error("give the URL with its port, as http://127.0.0.1:8000")
    payloads = [encode_post(given.path, body.encode()) for body in given.body]
    shots = plan(payloads, rate=given.rate, seconds=given.seconds)
    try:
        outcomes = asyncio.run(fire(url.hostname, url.port, shots))
    except KeyboardInterrupt:
        return 130
    print(report(outcomes, seconds=given.seconds))  # noqa: T201 - the result
    return 0


if __name__ == "__main__":
    sys.exit(main())

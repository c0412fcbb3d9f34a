"""Load from one process that does nothing else: some twenty microseconds of CPU a request, over bare sockets.

A closed loop asks again as soon as it is answered; an open one asks by a schedule, and latency counts from when a
request was due. `select` waits to the microsecond where an event loop rounds its timers up to a millisecond, which is
more than an answer takes.
"""

import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from select import select

from benchmarks.harness.open_loop import Shot, percentile, split_answer

APART_S = 0.001
"""Between two connections, so that workers that share a socket share them, too."""
PATIENCE_S = 10.0
"""How long nothing at all may come back."""

Connect = Callable[[], socket.socket]
Judge = Callable[[bytes], bool | None]
"""Whether what has arrived is a good answer, a bad one, or not whole yet (None)."""


@dataclass(slots=True)
class Sample:
    """What came of a while of load. Times in seconds."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    """How long after it was due each request left, in an open loop."""
    failed: int = 0
    rows: int = 1
    """What one answer counts for."""

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return self.rows * len(self.latencies) / self.seconds

    def describe(self) -> dict[str, float | None]:
        """In numbers, milliseconds for times, and None for times of nothing."""
        times = {"p50_ms": (self.latencies, 0.5), "p90_ms": (self.latencies, 0.9), "p99_ms": (self.latencies, 0.99)}
        times["late_p99_ms"] = (self.late, 0.99)
        found = {name: 1e3 * percentile(values, share) if values else None for name, (values, share) in times.items()}
        return {"rate": self.rate, "failed": self.failed, **found}


def connect_tcp(port: int) -> Connect:
    """Connects to a port of this machine."""

    def connect() -> socket.socket:
        link = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    return connect


def connect_unix(path: str) -> Connect:
    """Connects to a socket in the file system."""

    def connect() -> socket.socket:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(path)
        return link

    return connect


def judge_http(mark: bytes, *, times: int = 1) -> Judge:
    """Good are answers with status 200 that hold the mark so many times at least."""

    def judge(received: bytes) -> bool | None:
        if split_answer(received) is None:
            return None
        return received.startswith(b"HTTP/1.1 200 ") and received.count(mark) >= times

    return judge


def ask_once(connect: Connect, payload: bytes, judge: Judge) -> tuple[bool, bytes]:
    """Whether the answer is good, and all of it. Raises OSError without one."""
    with connect() as link:
        link.sendall(payload)
        received = b""
        while (good := judge(received)) is None:
            if not (data := link.recv(1 << 16)):
                raise ConnectionResetError("it hung up")
            received += data
        return good, received


def drive_closed(
    connect: Connect, payloads: Iterator[bytes], judge: Judge, *, connections: int, seconds: float
) -> Sample:
    """Each connection asks, waits for the answer and asks again, until the time is over or there is nothing to ask."""
    with _Lines(connect, connections, judge) as lines:
        began_s = time.perf_counter()
        end_s = began_s + seconds

        def send_next() -> None:
            now_s = time.perf_counter()
            while lines.idle and now_s < end_s and (payload := next(payloads, None)) is not None:
                lines.send(payload, now_s)

        send_next()
        while lines.flying and (left_s := end_s - time.perf_counter()) > 0:
            lines.receive(left_s, then=send_next)
        lines.sample.seconds = time.perf_counter() - began_s
        return lines.sample


def drive_open(connect: Connect, shots: Iterable[Shot], judge: Judge, *, connections: int, seconds: float) -> Sample:
    """Each shot leaves when it is due, or as soon as a connection is free, and all answers are waited for."""
    with _Lines(connect, connections, judge) as lines:
        sample = lines.sample
        began_s = time.perf_counter()
        waiting = iter(shots)
        shot = next(waiting, None)
        while shot is not None or lines.flying:
            now_s = time.perf_counter()
            while shot is not None and lines.idle and began_s + shot.at_s <= now_s:
                lines.send(shot.payload, began_s + shot.at_s)
                sample.late.append(now_s - began_s - shot.at_s)
                shot, now_s = next(waiting, None), time.perf_counter()
            soon_s = PATIENCE_S if shot is None or not lines.idle else max(0.0, began_s + shot.at_s - now_s)
            lines.receive(soon_s)
        sample.seconds = max(seconds, time.perf_counter() - began_s)
        return sample


class _Lines:
    """Connections, those that wait for an answer and those that do not."""

    def __init__(self, connect: Connect, count: int, judge: Judge) -> None:
        self.sample = Sample()
        self.idle: deque[socket.socket] = deque()
        self.flying: dict[socket.socket, float] = {}
        """Since when each is waited for."""
        self._connect = connect
        self._judge = judge
        self._received: dict[socket.socket, bytes] = {}
        for _ in range(count):
            self._open()
            time.sleep(APART_S)

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        for link in (*self.idle, *self.flying):
            link.close()

    def send(self, payload: bytes, since_s: float) -> None:
        """Ask on the connection that has been idle for longest."""
        link = self.idle.popleft()
        try:
            link.sendall(payload)
        except OSError:
            self._replace(link)
        else:
            self.flying[link] = since_s

    def receive(self, seconds: float, *, then: Callable[[], None] = lambda: None) -> None:
        """Take what comes within a time, and go on as soon as anything has come. `then` follows every answer."""
        ready, _, _ = select(self.flying, (), (), seconds)
        if not ready and seconds >= PATIENCE_S:
            raise TimeoutError(f"no answer within {PATIENCE_S:g} s")
        for link in ready:
            try:
                data = link.recv(1 << 16)
            except OSError:
                data = b""
            received = self._received.pop(link, b"") + data
            if not data:
                del self.flying[link]
                self._replace(link)
            elif (good := self._judge(received)) is None:
                self._received[link] = received
                continue
            else:
                since_s = self.flying.pop(link)
                self.idle.append(link)
                if good:
                    self.sample.latencies.append(time.perf_counter() - since_s)
                else:
                    self.sample.failed += 1
            then()

    def _open(self) -> None:
        self.idle.append(self._connect())

    def _replace(self, link: socket.socket) -> None:
        """A connection that the other end gave up is a failure."""
        link.close()
        self.sample.failed += 1
        self._open()

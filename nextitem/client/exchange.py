"""A call as steps, without input or output: what to send, how long to pause, and what to make of the reply.

An exchange is a generator. It yields a Send or a Pause and is sent a Reply, a Lost, or None after a pause. Both clients
drive the same generators by `advance`; they differ in how they wait.
"""

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeAlias, TypeVar

from nextitem.client.errors import RETRIED, ClientError, UnexpectedAnswer, Unreachable, read_problem, read_retry_after
from nextitem.client.reader import Mismatch

T = TypeVar("T")

MAX_PAUSE_S = 5.0
_MAX_DOUBLINGS = 10


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request, and wait for its answer for so long at most."""

    method: str
    path: str
    body: bytes | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next attempt."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    content: bytes
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing came back. Whether the service got the request is not known."""

    error: Exception
    why: str


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The call was answered."""

    result: T


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, in seconds from anywhere, and which share of the longest pause is waited, from 0 to 1."""

    now_s: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random


CLOCK = Clock()

Exchange: TypeAlias = Generator[Send | Pause, Reply | Lost | None, T]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and how its answer is read. It is sent again after a failure that may pass, within `limit_s`."""

    method: str
    route: str
    """The path as OpenAPI has it. Messages name it in place of `path`, which may hold the id of a user."""
    read: Callable[[bytes], T]
    limit_s: float
    attempt_s: float
    """Seconds that all attempts may take with their pauses, and seconds that one may wait for its answer."""
    path: str = ""
    """Where it goes; by default `route`."""
    write: Callable[[float], bytes | None] = lambda _elapsed_s: None
    """The body, by the seconds since the call began."""
    accepted: frozenset[int] = frozenset({200})
    first_pause_s: float = 0.1
    least_s: float = 0.05
    """Seconds without which another attempt is not worth its while."""
    repeated: bool = True


def draw_pause(attempt: int, first_s: float, retry_after: str | None, draw: Callable[[], float]) -> float:
    """Seconds until the next attempt: at least Retry-After, and any share of a span that doubles (full jitter).

    So clients that failed together do not come back together.
    """
    span_s = min(MAX_PAUSE_S, first_s * 2.0 ** min(attempt, _MAX_DOUBLINGS))
    return (read_retry_after(retry_after) or 0.0) + draw() * span_s


def ask(call: Call[T], clock: Clock = CLOCK) -> Exchange[T]:
    """Send a call until it is answered. Raises ClientError, at once where another attempt could not help."""
    began_s = clock.now_s()
    for attempt in count():
        elapsed_s = clock.now_s() - began_s
        timeout_s = min(call.attempt_s, max(call.limit_s - elapsed_s, call.least_s))
        reply = yield Send(call.method, call.path or call.route, call.write(elapsed_s), timeout_s)
        if isinstance(reply, Reply) and reply.status in call.accepted:
            return _read(call, reply)
        pause_s = draw_pause(attempt, call.first_pause_s, getattr(reply, "retry_after", None), clock.draw)
        left_s = call.limit_s - (clock.now_s() - began_s) - pause_s
        passes = isinstance(reply, Lost) or (isinstance(reply, Reply) and reply.status in RETRIED)
        if not (passes and call.repeated and left_s >= call.least_s):
            raise _explain(call, reply, attempt + 1) from (reply.error if isinstance(reply, Lost) else None)
        yield Pause(pause_s)
    raise AssertionError("count() does not end")


def advance(exchange: Exchange[T], reply: Reply | Lost | None) -> Send | Pause | Done[T]:
    """The next step after a reply; None begins, or ends a pause. Raises ClientError as the exchange does."""
    try:
        return exchange.send(reply)
    except StopIteration as ended:
        return Done(ended.value)


def _read(call: Call[T], reply: Reply) -> T:
    try:
        return call.read(reply.content)
    except Mismatch as mismatch:
        raise UnexpectedAnswer(
            f"The answer to {call.method} {call.route} is none of nextitem's: {mismatch}. Look at the client's "
            "address, and whether the service is older than the client."
        ) from mismatch


def _explain(call: Call[T], reply: Reply | Lost | None, attempts: int) -> ClientError:
    if isinstance(reply, Reply):
        return read_problem(reply.status, reply.content, reply.retry_after)
    why = reply.why if isinstance(reply, Lost) else "nothing came"
    tried = "one attempt" if attempts == 1 else f"{attempts} attempts"
    return Unreachable(
        f"No answer to {call.method} {call.route} within {call.limit_s:g} s, {tried} ({why}). Is the service running, "
        "and is the client's address right?"
    )

"""Dynamic batching without a timer. When idle, a single query runs at once; when busy, the queue is the next batch.

Queries whose client left or whose time is over are dropped. So are those that would expire before a batch of the usual
duration ends: otherwise an overloaded service would only compute late answers.

Single queries have priority. Queries of a batch request fill the rest of a batch, so that they neither delay single
queries nor take their places in the queue.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Q = TypeVar("Q")
R = TypeVar("R")

RECENT = 8
"""The duration of a batch is estimated as the second slowest of this many recent batches. The slowest may be a stall.
Anything lower is optimistic, and under first-in first-out an optimistic estimate admits requests that then miss their
deadlines."""

_log = logging.getLogger(__name__)


class BatcherStopped(Exception):
    """The batcher is closed or has failed; the query was not answered."""


class QueueFull(Exception):
    """The queue is full."""


class Expired(Exception):
    """The query has expired, or would expire before it could be answered."""


@dataclass(slots=True, eq=False)
class _Waiter(Generic[Q, R]):
    question: Q
    answer: asyncio.Future[R]
    since_s: float
    expires_s: float

    def expire(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(Expired())

    @property
    def outcome(self) -> R | Exception:
        try:
            return self.answer.result()
        except Exception as error:  # noqa: BLE001 - returned to the caller
            return error

    def cancel(self) -> None:
        if not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()  # else asyncio logs that it was never retrieved


class _ExpiryTimer(Generic[Q, R]):
    """Expires waiters at their deadlines. One timer serves all, since nearly all are answered in time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiters: set[_Waiter[Q, R]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_s = math.inf

    def add(self, waiter: _Waiter[Q, R]) -> None:
        self._waiters.add(waiter)
        if waiter.expires_s < self._fires_s:
            self._set(waiter.expires_s)

    def discard(self, waiter: _Waiter[Q, R]) -> None:
        """Remove a waiter. The timer stays set, and may fire for nobody."""
        self._waiters.discard(waiter)

    def _set(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_s = at_s
        self._timer = None
        if at_s < math.inf:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at_s - self._clock()), self._fire)

    def _fire(self) -> None:
        now_s = self._clock()
        for waiter in self._waiters:
            if waiter.expires_s <= now_s:
                waiter.expire()
        self._set(min((waiter.expires_s for waiter in self._waiters if not waiter.answer.done()), default=math.inf))


@dataclass(frozen=True, kw_only=True)
class Observers:
    """Callbacks for the batcher's events. If one raises, the batcher stops."""

    on_batch: Callable[[int], None] = lambda _size: None
    on_wait: Callable[[float], None] = lambda _seconds: None
    on_depth: Callable[[int], None] = lambda _waiting: None


class Batcher(Generic[Q, R]):
    """Passes queries of any type to `process` in batches, first in, first out.

    At most two batches run at a time: one may read and encode while the other computes. At most `max_waiting` queries
    wait, not counting those of `submit_many`, whose callers limit them. Times are seconds of `clock`.
    """

    def __init__(
        self,
        process: Callable[[Sequence[Q]], Awaitable[Sequence[R | Exception]]],
        *,
        max_batch: int,
        max_waiting: int,
        in_flight: int = 2,
        observers: Observers | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._process = process
        self._max_batch = max_batch
        self.max_waiting = max_waiting
        self._observers = observers or Observers()
        self._clock = clock
        self._waiting: OrderedDict[_Waiter[Q, R], None] = OrderedDict()
        self._low_priority: OrderedDict[_Waiter[Q, R], None] = OrderedDict()
        """Queries of submit_many, which let the others go first."""
        self._expiry: _ExpiryTimer[Q, R] = _ExpiryTimer(clock)
        self._recent_s: deque[float] = deque(maxlen=RECENT)
        self._in_flight = in_flight
        self._serving: set[asyncio.Task[None]] = set()
        self._dispatching = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    @property
    def alive(self) -> bool:
        """Whether it accepts queries: started, and neither closed nor failed."""
        return self._loop is not None and not self._closing

    def start(self) -> None:
        """Begin to accept queries, on the running loop."""
        self._loop = asyncio.get_running_loop()

    async def submit(self, question: Q, *, expires_s: float = math.inf) -> R:
        """The result of one query, which expires at `expires_s` of the clock.

        Raises the exception that `process` returns or raises, Expired, QueueFull or BatcherStopped.
        """
        waiter = self._enqueue(question, expires_s, self._waiting)
        try:
            return await waiter.answer  # cancelling this cancels the future, which marks the waiter as done
        finally:
            self._remove(waiter, self._waiting)

    async def submit_many(self, questions: Sequence[tuple[Q, float]]) -> AsyncGenerator[tuple[Q, R | Exception]]:
        """Yield each query with its result, or with the exception that `submit` would raise, in order.

        `questions` are queries with the times of the clock at which they expire. None is refused with QueueFull. Close
        the generator (`contextlib.aclosing`): that cancels unanswered queries.
        """
        waiters: list[_Waiter[Q, R] | Exception] = []
        try:
            for question, expires_s in questions:
                try:
                    waiters.append(self._enqueue(question, expires_s, self._low_priority))
                except (Expired, BatcherStopped) as refusal:
                    waiters.append(refusal)
            for (question, _), waiter in zip(questions, waiters, strict=True):
                if isinstance(waiter, Exception):
                    yield question, waiter
                    continue
                if not waiter.answer.done():
                    await asyncio.wait([waiter.answer])
                yield question, waiter.outcome
        finally:
            for waiter in waiters:
                if isinstance(waiter, _Waiter):
                    waiter.cancel()
                    self._remove(waiter, self._low_priority)

    async def close(self) -> None:
        """Refuse new queries, answer the waiting ones, then stop."""
        self._closing = True
        self._dispatch()
        while self._serving:
            await asyncio.wait(self._serving)

    def _enqueue(self, question: Q, expires_s: float, queue: OrderedDict[_Waiter[Q, R], None]) -> _Waiter[Q, R]:
        if self._loop is None or self._closing:
            raise BatcherStopped
        now_s = self._clock()
        if expires_s <= now_s:
            raise Expired
        if queue is self._waiting and len(queue) >= self.max_waiting:
            raise QueueFull
        waiter: _Waiter[Q, R] = _Waiter(question, self._loop.create_future(), now_s, expires_s)
        self._expiry.add(waiter)
        queue[waiter] = None
        self._observers.on_depth(len(self._waiting) + len(self._low_priority))
        if not self._dispatching and len(self._serving) < self._in_flight:
            self._dispatching = True
            self._loop.call_soon(self._dispatch)  # so that queries of the same loop iteration share a batch
        return waiter

    def _remove(self, waiter: _Waiter[Q, R], queue: OrderedDict[_Waiter[Q, R], None]) -> None:
        self._expiry.discard(waiter)
        if waiter in queue:  # frees its place at once, not only when a batch is taken
            del queue[waiter]
            self._observers.on_depth(len(self._waiting) + len(self._low_priority))

    def _dispatch(self) -> None:
        """Start as many batches as may run."""
        self._dispatching = False
        while (self._waiting or self._low_priority) and len(self._serving) < self._in_flight:
            batch = self._take()
            if not batch:  # all were cancelled meanwhile
                self._observers.on_depth(0)
                continue
            try:
                self._notify(batch)
                task = asyncio.create_task(self._serve(batch))
            except Exception as error:  # noqa: BLE001 - no waiter may be left waiting
                self._abort(batch, error)
                return
            self._serving.add(task)
            task.add_done_callback(self._served)

    def _take(self) -> list[_Waiter[Q, R]]:
        """The next batch: queries that can still be answered in time."""
        now_s = self._clock()
        earliest_end_s = now_s + (sorted(self._recent_s)[-2:] or [0.0])[0]
        batch: list[_Waiter[Q, R]] = []
        too_late: list[_Waiter[Q, R]] = []
        while (queue := self._waiting or self._low_priority) and len(batch) < self._max_batch:
            waiter, _ = queue.popitem(last=False)
            if waiter.expires_s <= now_s:  # the timer may be late when the loop is
                waiter.expire()
            elif not waiter.answer.done():
                (batch if waiter.expires_s > earliest_end_s else too_late).append(waiter)
        if not batch:  # run some anyway: otherwise no batch would show that batches have become faster
            batch, too_late = too_late[-self._max_batch :], too_late[: -self._max_batch]
        for waiter in too_late:
            waiter.expire()
        return batch

    def _notify(self, batch: list[_Waiter[Q, R]]) -> None:
        now_s = self._clock()
        for waiter in batch:
            self._observers.on_wait(now_s - waiter.since_s)
        self._observers.on_batch(len(batch))
        self._observers.on_depth(len(self._waiting) + len(self._low_priority))

    async def _serve(self, batch: list[_Waiter[Q, R]]) -> None:
        started_s = self._clock()
        try:
            results = await self._process([waiter.question for waiter in batch])
            if len(results) != len(batch):
                raise RuntimeError("a batch was answered with another number of results")  # noqa: TRY301 - answered below
            self._recent_s.append(self._clock() - started_s)
        except asyncio.CancelledError:
            _fail(batch)
            raise
        except Exception as error:  # noqa: BLE001 - passed on to the waiters
            _log.error("Batch failed", exc_info=error)
            results = [error] * len(batch)
        now_s = self._clock()
        for waiter, result in zip(batch, results, strict=True):
            if waiter.expires_s <= now_s:
                waiter.expire()
            if waiter.answer.done():
                continue
            if isinstance(result, Exception):
                waiter.answer.set_exception(result)
            else:
                waiter.answer.set_result(result)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        if self._waiting or self._low_priority:
            self._dispatch()

    def _abort(self, batch: Iterable[_Waiter[Q, R]], error: Exception) -> None:
        self._closing = True
        _log.critical("Batcher stopped after an unexpected error: the model answers no more requests", exc_info=error)
        _fail([*batch, *self._waiting, *self._low_priority])  # the batch has left its queue
        self._waiting.clear()
        self._low_priority.clear()


def _fail(waiters: Iterable[_Waiter[Q, R]]) -> None:
    for waiter in waiters:
        if not waiter.answer.done():
            waiter.answer.set_exception(BatcherStopped())

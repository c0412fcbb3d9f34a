"""Batches without a timer: idle, a lone question leaves at once; busy, whatever waits becomes the next batch.

No question is processed for nobody: who left or ran out of time is dropped, and so is who would run out of it before a
batch of the usual length ends. Otherwise a service that is asked too much would work on nothing but late answers.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Q = TypeVar("Q")
R = TypeVar("R")

RECENT = 8
"""Of so many batches the second slowest says how long one takes: not the slowest, since one may have stalled, but no
quicker one. First come first served, a full queue is led by those who have just enough time left, and were batches held
for quicker than they are, every one of them would end a moment too late."""

_log = logging.getLogger(__name__)


class BatcherStopped(Exception):
    """The batcher is closed, or its task died; the question was not answered."""


class QueueFull(Exception):
    """As many questions wait as may."""


class Expired(Exception):
    """The question's time is over, or will be before it can be answered."""


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
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            return error


class _Alarm(Generic[Q, R]):
    """Expires waiters when their time is over. One timer for all, since nearly all are answered before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiters: set[_Waiter[Q, R]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_s = math.inf

    def watch(self, waiter: _Waiter[Q, R]) -> None:
        """From now on."""
        self._waiters.add(waiter)
        if waiter.expires_s < self._rings_s:
            self._set(waiter.expires_s)

    def leave(self, waiter: _Waiter[Q, R]) -> None:
        """Not any more. The timer stays: it rings for nobody then."""
        self._waiters.discard(waiter)

    def _set(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_s = at_s
        self._timer = None
        if at_s < math.inf:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at_s - self._clock()), self._ring)

    def _ring(self) -> None:
        now_s = self._clock()
        for waiter in self._waiters:
            if waiter.expires_s <= now_s:
                waiter.expire()
        self._set(min((waiter.expires_s for waiter in self._waiters if not waiter.answer.done()), default=math.inf))


@dataclass(frozen=True, kw_only=True)
class Observers:
    """Who is told what the batcher does. One that raises ends the batcher."""

    on_batch: Callable[[int], None] = lambda _size: None
    on_wait: Callable[[float], None] = lambda _seconds: None
    on_depth: Callable[[int], None] = lambda _waiting: None


class Batcher(Generic[Q, R]):
    """Hands questions to `process` in batches, first come first served; knows nothing of what they are.

    Two batches are under way at most: one may read and encode while the other computes. `max_waiting` questions wait
    at most. Times are those of `clock`, in seconds.
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
        self._max_waiting = max_waiting
        self._observers = observers or Observers()
        self._clock = clock
        self._waiting: OrderedDict[_Waiter[Q, R], None] = OrderedDict()
        self._alarm: _Alarm[Q, R] = _Alarm(clock)
        self._recent_s: deque[float] = deque(maxlen=RECENT)
        self._in_flight = in_flight
        self._serving: set[asyncio.Task[None]] = set()
        self._dispatching = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    @property
    def alive(self) -> bool:
        """Whether questions are taken: started, neither closed nor dead."""
        return self._loop is not None and not self._closing

    def start(self) -> None:
        """Begin to take questions, on the running loop."""
        self._loop = asyncio.get_running_loop()

    async def submit(self, question: Q, *, expires_s: float = math.inf) -> R:
        """The answer to one question, until `expires_s` of the clock.

        Raises what `process` gives or raises for it, Expired, QueueFull or BatcherStopped.
        """
        waiter = self._enqueue(question, expires_s)
        try:
            return await waiter.answer  # cancelling this cancels the future, which marks the waiter as departed
        finally:
            self._forget(waiter)

    async def submit_many(self, questions: Iterable[tuple[Q, float]]) -> list[R | Exception]:
        """The answers to questions that each expire at a time of the clock, in order, or what `submit` would raise."""
        waiters: list[_Waiter[Q, R] | Exception] = []
        for question, expires_s in questions:
            try:
                waiters.append(self._enqueue(question, expires_s))
            except (Expired, QueueFull, BatcherStopped) as refusal:
                waiters.append(refusal)
        asked = [waiter for waiter in waiters if isinstance(waiter, _Waiter)]
        try:
            if asked:
                await asyncio.wait([waiter.answer for waiter in asked])
        finally:
            for waiter in asked:
                waiter.answer.cancel()  # if they are not done, whoever asked has left
                self._forget(waiter)
        return [waiter if isinstance(waiter, Exception) else waiter.outcome for waiter in waiters]

    async def close(self) -> None:
        """Refuse new questions, answer those that wait, then stop."""
        self._closing = True
        self._dispatch()
        while self._serving:
            await asyncio.wait(self._serving)

    def _enqueue(self, question: Q, expires_s: float) -> _Waiter[Q, R]:
        if self._loop is None or self._closing:
            raise BatcherStopped
        now_s = self._clock()
        if expires_s <= now_s:
            raise Expired
        if len(self._waiting) >= self._max_waiting:
            raise QueueFull
        waiter: _Waiter[Q, R] = _Waiter(question, self._loop.create_future(), now_s, expires_s)
        self._alarm.watch(waiter)
        self._waiting[waiter] = None
        self._observers.on_depth(len(self._waiting))
        if not self._dispatching and len(self._serving) < self._in_flight:
            self._dispatching = True
            self._loop.call_soon(self._dispatch)  # so that those who ask in the same turn of the loop go together
        return waiter

    def _forget(self, waiter: _Waiter[Q, R]) -> None:
        self._alarm.leave(waiter)
        if waiter in self._waiting:  # it makes room at once, not only when a batch is taken
            del self._waiting[waiter]
            self._observers.on_depth(len(self._waiting))

    def _dispatch(self) -> None:
        """Send batches on their way, as many as may be."""
        self._dispatching = False
        while self._waiting and len(self._serving) < self._in_flight:
            batch = self._take()
            if not batch:  # all departed meanwhile
                self._observers.on_depth(0)
                continue
            try:
                self._tell(batch)
                task = asyncio.create_task(self._serve(batch))
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait in vain
                self._die(batch, error)
                return
            self._serving.add(task)
            task.add_done_callback(self._served)

    def _take(self) -> list[_Waiter[Q, R]]:
        """The next batch, of those who can still be answered in time."""
        now_s = self._clock()
        soonest_s = now_s + (sorted(self._recent_s)[-2:] or [0.0])[0]
        batch: list[_Waiter[Q, R]] = []
        hopeless: list[_Waiter[Q, R]] = []
        while self._waiting and len(batch) < self._max_batch:
            waiter, _ = self._waiting.popitem(last=False)
            if waiter.expires_s <= now_s:  # its alarm may be late when the loop is
                waiter.expire()
            elif not waiter.answer.done():
                (batch if waiter.expires_s > soonest_s else hopeless).append(waiter)
        if not batch:  # some of them must try, or no batch would ever show that it has become quicker
            batch, hopeless = hopeless[-self._max_batch :], hopeless[: -self._max_batch]
        for waiter in hopeless:
            waiter.expire()
        return batch

    def _tell(self, batch: list[_Waiter[Q, R]]) -> None:
        now_s = self._clock()
        for waiter in batch:
            self._observers.on_wait(now_s - waiter.since_s)
        self._observers.on_batch(len(batch))
        self._observers.on_depth(len(self._waiting))

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
        except Exception as error:  # noqa: BLE001 - whatever it is, it is these waiters' answer
            _log.error("A batch failed", exc_info=error)
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
        if self._waiting:
            self._dispatch()

    def _die(self, batch: Iterable[_Waiter[Q, R]], error: Exception) -> None:
        self._closing = True
        _log.critical("The batcher died: no question will be answered by the model", exc_info=error)
        _fail([*batch, *self._waiting])  # the batch waits in no queue any more
        self._waiting.clear()


def _fail(waiters: Iterable[_Waiter[Q, R]]) -> None:
    for waiter in waiters:
        if not waiter.answer.done():
            waiter.answer.set_exception(BatcherStopped())

"""Batches without a timer: idle, a lone question leaves at once; busy, whatever waits becomes the next batch."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Q = TypeVar("Q")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class BatcherStopped(Exception):
    """The batcher is closed, or its task died; the question was not answered."""


@dataclass(frozen=True, slots=True)
class _Waiter(Generic[Q, R]):
    question: Q
    answer: asyncio.Future[R]
    since: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, kw_only=True)
class Observers:
    """Who is told what the batcher does. One that raises ends the batcher."""

    on_batch: Callable[[int], None] = lambda _size: None
    on_wait: Callable[[float], None] = lambda _seconds: None
    on_depth: Callable[[int], None] = lambda _waiting: None


class Batcher(Generic[Q, R]):
    """Hands questions to `process` in batches, first come first served; knows nothing of what they are.

    Two batches are under way at most: one may read and encode while the other computes.
    """

    def __init__(
        self,
        process: Callable[[Sequence[Q]], Awaitable[Sequence[R | Exception]]],
        *,
        max_batch: int,
        in_flight: int = 2,
        observers: Observers | None = None,
    ) -> None:
        self._process = process
        self._max_batch = max_batch
        self._observers = observers or Observers()
        self._waiting: deque[_Waiter[Q, R]] = deque()
        self._arrived = asyncio.Event()
        self._slots = asyncio.Semaphore(in_flight)
        self._serving: set[asyncio.Task[None]] = set()
        self._collector: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def alive(self) -> bool:
        """Whether questions are taken: started, neither closed nor dead."""
        return self._collector is not None and not self._collector.done() and not self._closing

    def start(self) -> None:
        """Begin to take questions, on the running loop."""
        self._collector = asyncio.create_task(self._collect(), name="batcher")
        self._collector.add_done_callback(self._collector_ended)

    async def submit(self, question: Q) -> R:
        """The answer to one question. Raises what `process` gives or raises for it, or BatcherStopped."""
        if not self.alive:
            raise BatcherStopped
        waiter: _Waiter[Q, R] = _Waiter(question, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._observers.on_depth(len(self._waiting))
        self._arrived.set()
        return await waiter.answer  # cancelling this cancels the future, which marks the waiter as departed

    async def close(self) -> None:
        """Refuse new questions, answer those that wait, then stop."""
        self._closing = True
        self._arrived.set()
        if self._collector is not None:
            await asyncio.wait([self._collector])
        while self._serving:
            await asyncio.wait(self._serving)

    async def _collect(self) -> None:
        while self._waiting or not self._closing:
            await self._arrived.wait()
            await self._slots.acquire()
            batch = self._take()
            if not batch:  # all departed meanwhile
                self._observers.on_depth(0)
                self._slots.release()
                continue
            try:
                self._tell(batch)
                task = asyncio.create_task(self._serve(batch))
            except BaseException:
                _fail(batch)  # they wait in no queue any more
                raise
            self._serving.add(task)
            task.add_done_callback(self._served)

    def _take(self) -> list[_Waiter[Q, R]]:
        batch: list[_Waiter[Q, R]] = []
        while self._waiting and len(batch) < self._max_batch:
            waiter = self._waiting.popleft()
            if not waiter.answer.done():
                batch.append(waiter)
        if not self._waiting and not self._closing:
            self._arrived.clear()
        return batch

    def _tell(self, batch: list[_Waiter[Q, R]]) -> None:
        now = time.perf_counter()
        for waiter in batch:
            self._observers.on_wait(now - waiter.since)
        self._observers.on_batch(len(batch))
        self._observers.on_depth(len(self._waiting))

    async def _serve(self, batch: list[_Waiter[Q, R]]) -> None:
        try:
            results = await self._process([waiter.question for waiter in batch])
            if len(results) != len(batch):
                raise RuntimeError("a batch was answered with another number of results")  # noqa: TRY301 - answered below
        except asyncio.CancelledError:
            _fail(batch)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is these waiters' answer
            _log.error("A batch failed", exc_info=error)
            results = [error] * len(batch)
        for waiter, result in zip(batch, results, strict=True):
            if waiter.answer.done():
                continue
            if isinstance(result, Exception):
                waiter.answer.set_exception(result)
            else:
                waiter.answer.set_result(result)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._slots.release()

    def _collector_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            _log.critical("The batcher's task died: no question will be answered by the model", exc_info=error)
        _fail(self._waiting)
        self._waiting.clear()


def _fail(waiters: Sequence[_Waiter[Q, R]]) -> None:
    for waiter in waiters:
        if not waiter.answer.done():
            waiter.answer.set_exception(BatcherStopped())

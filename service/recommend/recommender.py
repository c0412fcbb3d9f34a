"""Answers requests within their deadlines: batches them, lets them wait for their history, and falls back in time.

The deadline is checked before each piece of work, and no wait goes beyond it. What the work is: pipeline.py.

At most MAX_BATCHED requests of batches are in flight. The next batch waits until the earliest of its own deadlines.
Work for batches is divided into time slices, so that single requests run in between.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from service.api.requests import MAX_REQUESTS, RecommendRequest
from service.api.responses import Recommendation
from service.errors import HistoryBehind, Overloaded
from service.inference.runner import EngineRunner
from service.recommend.batcher import Batcher, BatcherStopped, Expired, Observers, QueueFull
from service.recommend.pending import PendingRequest
from service.recommend.pipeline import Pipeline
from service.recommend.time_slices import TimeSlices
from service.recommend.weighted_semaphore import WeightedSemaphore
from service.telemetry.metrics import Metrics
from service.telemetry.stage_timer import StageTimer

VERSION_PAUSE_S = 0.02
MAX_BATCHED = 2 * MAX_REQUESTS
"""Maximum requests of POST /recommend/batch in flight: one batch can be read and written while another is answered.
All of them may expire at once, and popular items for so many take a tenth of a second."""


class Recommender:
    """Answers RecommendRequests, several per model run."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        runner: EngineRunner,
        metrics: Metrics,
        max_batch: int,
        max_waiting: int,
        max_version_waiters: int,
    ) -> None:
        """Take the pipeline that answers batches, and the runner that it uses.

        At most `max_version_waiters` requests wait for a history to reach their `min_history_version`.
        """
        self._pipeline = pipeline
        self._runner = runner
        self._metrics = metrics
        self._batcher: Batcher[PendingRequest, Recommendation] = Batcher(
            pipeline.answer,
            max_batch=max_batch,
            max_waiting=max_waiting,
            observers=Observers(on_batch=metrics.batch_started, on_wait=metrics.waited, on_depth=metrics.queue_changed),
        )
        self._max_batch = max_batch
        self._room_for_batches = WeightedSemaphore(MAX_BATCHED)
        self.reading = TimeSlices()
        """Time slices for reading batches. Answers have their own, so that begun batches end before new ones begin."""
        self._answering = TimeSlices()
        self._max_version_waiters = max_version_waiters
        self._version_waiters = 0

    @property
    def alive(self) -> bool:
        """Whether the batcher accepts requests."""
        return self._batcher.alive

    @property
    def engine_fails(self) -> bool:
        """Whether the last run failed or the current one hangs."""
        return self._runner.fails

    def start(self) -> None:
        """Begin to answer, on the running loop."""
        self._batcher.start()

    async def close(self) -> None:
        """Answer waiting requests, then stop, including the engine's thread. A hanging run is abandoned."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._runner.stuck_after_s):
                await self._batcher.close()
        self._runner.close()

    async def recommend(self, request: RecommendRequest, timer: StageTimer) -> Recommendation:
        """One answer, within its deadline. Raises HistoryBehind if the history does not reach the version by then."""
        try:
            answer = await self._attempt(request, timer)
        except HistoryBehind:
            answer = await self._await_history(request, timer)
        self._count(answer)
        return answer

    async def recommend_many(
        self, requests: Sequence[RecommendRequest], *, started_s: float
    ) -> AsyncGenerator[Recommendation]:
        """Yield the answer to each of at most MAX_REQUESTS requests, in order.

        Their time began at `started_s`. Raises Overloaded if there is no room for all in time, and HistoryBehind if one
        of them would. Close the generator (`contextlib.aclosing`): until then its requests count as in flight.
        """
        batch = [PendingRequest(request, StageTimer(started_s)) for request in requests]
        async with self._take_room(batch), contextlib.aclosing(self._ask_many(batch)) as outcomes:
            async for pending, outcome in outcomes:
                await self._answering.pause()
                if isinstance(outcome, HistoryBehind):
                    answer = await self._await_history(pending.request, pending.timer)
                elif isinstance(outcome, Exception):
                    answer = await self._fallback(pending, outcome)
                else:
                    answer = outcome
                self._count(answer)
                yield answer

    @contextlib.asynccontextmanager
    async def _take_room(self, batch: Sequence[PendingRequest]) -> AsyncIterator[None]:
        """Wait for room for a batch, until the earliest of its deadlines. Raises Overloaded."""
        try:
            await self._room_for_batches.acquire(len(batch), within_s=min(pending.left_s for pending in batch))
        except TimeoutError:
            self._metrics.shed("batches_full")
            raise Overloaded from None
        try:
            yield
        finally:
            self._room_for_batches.release(len(batch))
            for pending in batch:
                pending.abandoned = True

    async def _ask_many(
        self, batch: Sequence[PendingRequest]
    ) -> AsyncGenerator[tuple[PendingRequest, Recommendation | Exception]]:
        """Yield each request with its answer or exception, in order."""
        if not self._runner.stuck:
            questions = [(pending, pending.expires_s) for pending in batch]
            async with contextlib.aclosing(self._batcher.submit_many(questions)) as outcomes:
                async for pending, outcome in outcomes:
                    yield pending, outcome
            return
        for start in range(0, len(batch), self._max_batch):
            portion = batch[start : start + self._max_batch]
            await self._pipeline.read_histories(portion)
            for pending in portion:
                try:
                    yield pending, self._pipeline.answer_degraded(pending, "engine_unavailable")
                except HistoryBehind as behind:
                    yield pending, behind

    def _count(self, answer: Recommendation) -> None:
        self._metrics.answered(source=answer["source"], degraded=answer["degraded"])
        self._metrics.items_unknown(len(answer["unknown_item_ids"]))

    async def _attempt(self, request: RecommendRequest, timer: StageTimer) -> Recommendation:
        """One answer from the current history. Raises HistoryBehind if that is too old."""
        pending = PendingRequest(request, timer)
        try:
            if self._runner.stuck:
                return await self._answer_without_engine(pending)
            return await self._batcher.submit(pending, expires_s=pending.expires_s)
        except (Expired, QueueFull, BatcherStopped) as refusal:
            return await self._fallback(pending, refusal)
        finally:
            pending.abandoned = True

    async def _await_history(self, request: RecommendRequest, timer: StageTimer) -> Recommendation:
        """One answer, once the history is new enough. Raises HistoryBehind, at once if too many requests wait."""
        if self._version_waiters >= self._max_version_waiters:
            self._metrics.shed("waiters_full")
            raise HistoryBehind
        pending = PendingRequest(request, timer)  # knows how much time is left
        self._version_waiters += 1
        try:
            while pending.left_s > VERSION_PAUSE_S:
                await asyncio.sleep(VERSION_PAUSE_S)
                timer.record("history")  # the wait is for the history, not for the engine
                with contextlib.suppress(HistoryBehind):
                    return await self._attempt(request, timer)
        finally:
            self._version_waiters -= 1
        raise HistoryBehind

    async def _fallback(self, pending: PendingRequest, outcome: Exception) -> Recommendation:
        """The answer when the batcher gives none. Raises exceptions that no fallback covers."""
        match outcome:
            case Expired():
                return self._pipeline.answer_degraded(pending, "deadline")
            case QueueFull():
                self._metrics.shed("queue_full")
                return self._pipeline.answer_degraded(pending, "overloaded")
            case BatcherStopped():
                return await self._answer_without_engine(pending)
        raise outcome

    async def _answer_without_engine(self, pending: PendingRequest) -> Recommendation:
        await self._pipeline.read_histories([pending])
        return self._pipeline.answer_degraded(pending, "engine_unavailable")

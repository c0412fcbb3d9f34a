"""Makes recommendations: reads the history, encodes, ranks, and falls back step by step where one of these fails.

The fallbacks, best first. An answer names the one used as `source`, and the reason as `degraded`:
  model      from the stored history and the request's items, or from the items alone while the store is down
  neighbours from the bundle's sessions most similar to the history, if the engine fails and the bundle has sessions
  popular    no known item (a cold start, not degraded), no store, no engine, no time left, or over a limit

Every request has a deadline. It is checked before each piece of work, and no wait goes beyond it.

At most MAX_BATCHED requests of batches are in flight. The next batch waits until the earliest of its own deadlines.
Work for batches is divided into time slices, so that single requests run in between.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import uuid_utils

from model.contract.event_inputs import Events
from model.contract.query import Answer, Question, encode_question
from service.api.requests import MAX_REQUESTS, MAX_TIMEOUT_MS, RecommendRequest
from service.api.responses import Degraded, HistoryState, Recommendation, Source
from service.api.timestamps import format_rfc_3339
from service.errors import EngineUnavailable, HistoryBehind, Overloaded, StoreUnavailable
from service.inference.engine import CUDA
from service.inference.model import LiveModel
from service.inference.run_time import RunTimeEstimator
from service.inference.thread import EngineThread
from service.recommend.batcher import Batcher, BatcherStopped, Expired, Observers, QueueFull
from service.recommend.pending import PendingRequest, start_stage
from service.recommend.time_slices import TimeSlices
from service.recommend.weighted_semaphore import WeightedSemaphore
from service.store.circuit_breaker import CircuitBreaker, ran_out
from service.store.history import HistoryStore
from service.store.records import History
from service.telemetry.metrics import Metrics
from service.telemetry.stage_timer import StageTimer

INLINE_S = 0.004
"""Shorter runs on a CPU are made on the event loop's thread. Handing a run to another thread and back costs a sixth of
an answer, and the loop has little else to do meanwhile (docs/lab/2026-11-22-cost-of-an-answer.md)."""
READ_SHARE = 0.4
"""Share of the remaining time that the store may take, so that enough remains to answer without it."""
STUCK_S = MAX_TIMEOUT_MS / 1000
"""Nobody waits for a longer run any more. Until it ends the engine counts as unavailable."""
VERSION_PAUSE_S = 0.02
MAX_BATCHED = 2 * MAX_REQUESTS
"""Maximum requests of POST /recommend/batch in flight: one batch can be read and written while another is answered.
All of them may expire at once, and popular items for so many take a tenth of a second."""

_log = logging.getLogger(__name__)


class Recommender:
    """Answers RecommendRequests, several per model run."""

    def __init__(
        self,
        model: LiveModel,
        *,
        store: HistoryStore,
        breaker: CircuitBreaker,
        metrics: Metrics,
        executor: EngineThread,
        max_batch: int,
        max_waiting: int,
        max_version_waiters: int,
    ) -> None:
        """Take the engine's thread for runs that would block the event loop.

        At most `max_version_waiters` requests wait for a history to reach their `min_history_version`.
        """
        self._model = model
        self._store = store
        self._breaker = breaker
        self._metrics = metrics
        self._executor = executor
        self._batcher: Batcher[PendingRequest, Recommendation] = Batcher(
            self._answer_batch,
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
        self._run_time = RunTimeEstimator()
        self._failed = False
        self._running_since_s: float | None = None

    @property
    def alive(self) -> bool:
        """Whether the batcher accepts requests."""
        return self._batcher.alive

    @property
    def engine_fails(self) -> bool:
        """Whether the last run failed or the current one hangs."""
        return self._failed or self._stuck

    @property
    def _stuck(self) -> bool:
        since_s = self._running_since_s
        return since_s is not None and time.perf_counter() - since_s > STUCK_S

    def start(self) -> None:
        """Begin to answer, on the running loop."""
        self._batcher.start()

    async def close(self) -> None:
        """Answer waiting requests, then stop, including the engine's thread. A hanging run is abandoned."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STUCK_S):
                await self._batcher.close()
        self._executor.shutdown(wait=False)

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
        if not self._stuck:
            questions = [(pending, pending.expires_s) for pending in batch]
            async with contextlib.aclosing(self._batcher.submit_many(questions)) as outcomes:
                async for pending, outcome in outcomes:
                    yield pending, outcome
            return
        for start in range(0, len(batch), self._max_batch):
            portion = batch[start : start + self._max_batch]
            start_stage(portion, "history")
            await self._read_histories(portion)
            for pending in portion:
                try:
                    yield pending, self._answer_degraded(pending, "engine_unavailable")
                except HistoryBehind as behind:
                    yield pending, behind

    def _count(self, answer: Recommendation) -> None:
        self._metrics.answered(source=answer["source"], degraded=answer["degraded"])
        self._metrics.items_unknown(len(answer["unknown_item_ids"]))

    async def _attempt(self, request: RecommendRequest, timer: StageTimer) -> Recommendation:
        """One answer from the current history. Raises HistoryBehind if that is too old."""
        pending = PendingRequest(request, timer)
        try:
            if self._stuck:
                return (await self._answer_without_engine([pending]))[0]
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
                return self._answer_degraded(pending, "deadline")
            case QueueFull():
                self._metrics.shed("queue_full")
                return self._answer_degraded(pending, "overloaded")
            case BatcherStopped():
                return (await self._answer_without_engine([pending]))[0]
        raise outcome

    async def _answer_batch(self, batch: Sequence[PendingRequest]) -> Sequence[Recommendation | Exception]:
        model = self._model  # one reference for the whole batch, whatever replaces it meanwhile
        start_stage(batch, "history")
        await self._read_histories(batch)
        start_stage(batch, "encode")
        for pending in batch:
            self._encode(model, pending)
        start_stage(batch, "queue")
        await self._rank(model, batch)
        start_stage(batch, "respond")
        return [self._respond(model, pending) if pending.wanted else Expired() for pending in batch]

    async def _answer_without_engine(self, batch: Sequence[PendingRequest]) -> list[Recommendation]:
        start_stage(batch, "history")
        await self._read_histories(batch)
        return [self._answer_degraded(pending, "engine_unavailable") for pending in batch]

    def _answer_degraded(self, pending: PendingRequest, reason: Degraded) -> Recommendation:
        """Answer at once from what is known so far. Raises HistoryBehind if the history is too old."""
        pending.timer.record(pending.stage)
        if pending.question is None:
            self._check_version(pending)
            self._encode(self._model, pending)
            pending.timer.record("encode")
        pending.ranking, pending.degraded = None, reason
        answer = self._respond(self._model, pending)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _read_histories(self, batch: Sequence[PendingRequest]) -> None:
        """Read all histories in one round trip, within the latest deadline of the batch."""
        readers = [
            (pending, pending.request.user_id)
            for pending in batch
            if pending.request.user_id is not None and pending.wanted
        ]
        if not readers:
            return
        within_s = READ_SHARE * max(pending.left_s for pending, _ in readers)
        try:
            with self._breaker.guard(within_s=within_s):
                histories = await self._store.read_many([user_id for _, user_id in readers], within_s=within_s)
        except StoreUnavailable as error:
            rushed = ran_out(error, within_s)  # then the store is not at fault
            for pending, _ in readers:
                pending.degraded = "deadline" if rushed else "store_unavailable"
        else:
            for (pending, _), history in zip(readers, histories, strict=True):
                if isinstance(history, History):
                    pending.history = history
                else:  # only this user's history is unreadable
                    pending.degraded = "store_unavailable"
        for pending, _ in readers:
            self._check_version(pending)

    def _check_version(self, pending: PendingRequest) -> None:
        version = pending.request.min_history_version
        if version is not None and (pending.history is None or pending.history.version < version):
            pending.failure = HistoryBehind()

    def _encode(self, model: LiveModel, pending: PendingRequest) -> None:
        if pending.failure is not None:
            return
        request = pending.request
        history = [*(pending.history.item_ids if pending.history else ()), *(request.items or ())]
        try:
            pending.question = encode_question(
                model.vocabulary,
                history=history,
                exclude=request.exclude_item_ids,
                candidates=request.candidate_item_ids,
                k=request.k,
                exclude_history=request.exclude_seen,
                events=_events_of(pending) if model.reads_events else None,
                event_types=model.event_types,
            )
        except Exception as error:  # noqa: BLE001 - one request must not fail the others of its batch
            pending.failure = error

    async def _rank(self, model: LiveModel, batch: Sequence[PendingRequest]) -> None:
        """Run the model once for all requests with a known item that still wait when the run begins."""
        askers = [
            (pending, pending.question) for pending in batch if pending.question and len(pending.question.history)
        ]
        if not askers:
            return

        def run() -> list[tuple[PendingRequest, Answer]]:
            start_stage(batch, "inference")  # waiting for the engine's thread; requests that are not ranked wait, too
            wanted = [(pending, question) for pending, question in askers if pending.wanted]
            if not wanted:
                return []
            self._running_since_s = began_s = time.perf_counter()
            try:
                answers = model.rank([question for _, question in wanted])
            finally:
                self._running_since_s = None
            self._run_time.record(len(wanted), time.perf_counter() - began_s)
            return list(zip((pending for pending, _ in wanted), answers, strict=True))

        try:
            short = model.engine.provider != CUDA and self._run_time.predict_s(len(askers)) < INLINE_S
            if short and self._executor.idle:
                ranked = run()
            else:
                ranked = await asyncio.get_running_loop().run_in_executor(self._executor, run)
        except EngineUnavailable as error:
            self._failed = True
            self._run_time.reset()
            _log.error("Engine failed: answering without the model", extra={"fields": {"why": str(error)}})
            for pending, _ in askers:
                pending.degraded = "engine_unavailable"
            return
        self._failed = self._failed and not ranked
        for pending, ranking in ranked:
            pending.ranking = ranking

    def _respond(self, model: LiveModel, pending: PendingRequest) -> Recommendation | Exception:
        """Build the answer, from the popular list if the model gave none."""
        if pending.failure is not None or pending.question is None:
            return pending.failure or RuntimeError("a question was not encoded")
        source, ranking = _rank(model, pending, pending.question)
        named = dict.fromkeys([*(pending.request.items or ()), *(pending.request.candidate_item_ids or ())])
        return {
            "recommendation_id": str(uuid_utils.uuid7()),
            "user_id": pending.request.user_id,
            "items": [
                {"item_id": item_id, "score": score, "rank": rank}
                for rank, (item_id, score) in enumerate(zip(*ranking, strict=True), start=1)
            ],
            "count": len(ranking.item_ids),
            "requested": pending.request.k,
            "source": source,
            "degraded": pending.degraded,
            "model": {"name": model.manifest.name, "version": model.manifest.version},
            "history": None if pending.history is None else _describe_history(pending.history),
            "unknown_item_ids": [item_id for item_id in named if item_id not in model.vocabulary],
            "took_ms": pending.timer.took_ms(),
        }


def _rank(model: LiveModel, pending: PendingRequest, question: Question) -> tuple[Source, Answer]:
    """The best available source. Neighbours take a millisecond each, affordable only while the engine is down."""
    if pending.ranking is not None:
        return "model", pending.ranking
    if pending.degraded == "engine_unavailable" and len(question.history):
        ranking = model.rank_neighbours(question)
        if ranking is not None:
            return "neighbours", ranking
    return "popular", model.rank_popular(question)


def _events_of(pending: PendingRequest) -> Events:
    """The event features of the stored history; unknown ones for the request's own items."""
    events = pending.history.events if pending.history else None
    types, values, times_ms = events or Events((), (), ())
    own = len(pending.request.items or ())
    return Events([*types, *[""] * own], [*values, *[None] * own], [*times_ms, *[0] * own])


def _describe_history(history: History) -> HistoryState:
    at_ms = history.last_event_at_ms
    return {
        "version": history.version,
        "length": len(history.item_ids),
        "last_event_at": None if at_ms is None else format_rfc_3339(at_ms),
    }

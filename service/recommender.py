"""How an answer comes about: read the history, encode, rank, and fall back step by step where that fails.

The ladder, best first; the step taken is `source`, the reason `degraded`:
  model      from the stored history and the request's items, or from the items alone while the store is down
  neighbours the engine fails, and the bundle carries sessions: what those most like the history hold
  popular    no known item to go by (a cold start, not degraded), no store, no engine, no time left, or no room

Every request has a deadline. It is looked at before each piece of work, and nothing that waits passes it.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

import uuid_utils

from model.contract.behaviour import Events
from model.contract.question import Answer, Question, encode_question
from service.answers import Degraded, HistoryState, Recommendation, Source
from service.batcher import Batcher, BatcherStopped, Expired, Observers, QueueFull
from service.breaker import Breaker, ran_out
from service.draft import Draft, enter
from service.engine import CUDA
from service.engine_thread import EngineThread
from service.errors import EngineUnavailable, HistoryBehind, StoreUnavailable
from service.history import History, HistoryStore
from service.live_model import LiveModel
from service.metrics import Metrics
from service.pace import Pace
from service.schemas import MAX_TIMEOUT_MS, RecommendRequest
from service.stopwatch import Stopwatch
from service.times import format_rfc_3339

INLINE_S = 0.004
"""A run on a CPU that ends sooner is made on the event loop's own thread: to hand it to another and back costs a sixth
of an answer, and the loop has little else to do meanwhile (docs/experiments.md)."""
READ_SHARE = 0.4
"""How much of the time left the store may take: enough must remain for an answer without it."""
STUCK_S = MAX_TIMEOUT_MS / 1000
"""A run that takes longer has nobody left who waits for it: until it ends the engine counts as unavailable."""
VERSION_PAUSE_S = 0.02

_log = logging.getLogger(__name__)


class Recommender:
    """Answers RecommendRequests, several in one model run."""

    def __init__(
        self,
        model: LiveModel,
        *,
        store: HistoryStore,
        breaker: Breaker,
        metrics: Metrics,
        executor: EngineThread,
        max_batch: int,
        max_waiting: int,
    ) -> None:
        """Take the engine's thread, where runs are made that would hold up the event loop."""
        self._model = model
        self._store = store
        self._breaker = breaker
        self._metrics = metrics
        self._executor = executor
        self._batcher: Batcher[Draft, Recommendation] = Batcher(
            self._answer_batch,
            max_batch=max_batch,
            max_waiting=max_waiting,
            observers=Observers(on_batch=metrics.batch_started, on_wait=metrics.waited, on_depth=metrics.queue_changed),
        )
        self._portion = min(max_batch, max_waiting)
        self._room_for_portions = asyncio.Semaphore(2)  # as many as batches are under way
        self._pace = Pace()
        self._failed = False
        self._running_since_s: float | None = None

    @property
    def alive(self) -> bool:
        """Whether the model can be asked at all."""
        return self._batcher.alive

    @property
    def engine_fails(self) -> bool:
        """Whether the last run failed, or one does not come back."""
        return self._failed or self._stuck

    @property
    def _stuck(self) -> bool:
        since_s = self._running_since_s
        return since_s is not None and time.perf_counter() - since_s > STUCK_S

    def start(self) -> None:
        """Begin to answer, on the running loop."""
        self._batcher.start()

    async def close(self) -> None:
        """Answer what waits, then stop, the engine's thread included. A run that is stuck is left behind."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STUCK_S):
                await self._batcher.close()
        self._executor.shutdown(wait=False)

    async def recommend(self, ask: RecommendRequest, stopwatch: Stopwatch) -> Recommendation:
        """One answer, in time. Raises HistoryBehind when the history does not get as new as asked for meanwhile."""
        answer = await self._answer(ask, stopwatch)
        self._metrics.answered(source=answer["source"], degraded=answer["degraded"])
        return answer

    async def recommend_many(self, asks: Sequence[RecommendRequest], *, started_s: float) -> list[Recommendation]:
        """An answer to each, in order; their time began at `started_s`. Raises HistoryBehind when one does.

        They take turns in portions, so that many do not fill the queue for others.
        """
        drafts = [Draft(ask, Stopwatch(started_s)) for ask in asks]
        portions = [drafts[start : start + self._portion] for start in range(0, len(drafts), self._portion)]
        try:
            async with asyncio.TaskGroup() as group:
                answers = [group.create_task(self._answer_portion(portion)) for portion in portions]
        except* HistoryBehind as behind:
            raise behind.exceptions[0] from None
        return [answer for task in answers for answer in task.result()]

    async def _answer_portion(self, drafts: Sequence[Draft]) -> list[Recommendation]:
        outcomes: Sequence[Recommendation | Exception]
        try:
            if self._stuck:
                outcomes = await self._answer_without_engine(drafts)
            else:
                async with self._room_for_portions:
                    outcomes = await self._batcher.submit_many((draft, draft.expires_s) for draft in drafts)
        finally:
            for draft in drafts:
                draft.abandoned = True
        answers = []
        for draft, outcome in zip(drafts, outcomes, strict=True):
            if isinstance(outcome, HistoryBehind):
                answer = await self._answer(draft.ask, draft.stopwatch)  # again, as long as there is time
            elif isinstance(outcome, Exception):
                answer = await self._mend(draft, outcome)
            else:
                answer = outcome
            self._metrics.answered(source=answer["source"], degraded=answer["degraded"])
            answers.append(answer)
        return answers

    async def _answer(self, ask: RecommendRequest, stopwatch: Stopwatch) -> Recommendation:
        while True:
            draft = Draft(ask, stopwatch)
            try:
                if self._stuck:
                    return (await self._answer_without_engine([draft]))[0]
                return await self._batcher.submit(draft, expires_s=draft.expires_s)
            except HistoryBehind:
                if draft.left_s <= VERSION_PAUSE_S:
                    raise
                await asyncio.sleep(VERSION_PAUSE_S)
                stopwatch.lap("history")  # it is the history that is waited for, not the engine
            except (Expired, QueueFull, BatcherStopped) as refusal:
                return await self._mend(draft, refusal)
            finally:
                draft.abandoned = True

    async def _mend(self, draft: Draft, outcome: Exception) -> Recommendation:
        """What is answered when the batcher gives no answer. Raises what no answer helps against."""
        match outcome:
            case Expired():
                return self._fall_back(draft, "deadline")
            case QueueFull():
                self._metrics.shed("queue_full")
                return self._fall_back(draft, "overloaded")
            case BatcherStopped():
                return (await self._answer_without_engine([draft]))[0]
        raise outcome

    async def _answer_batch(self, drafts: Sequence[Draft]) -> Sequence[Recommendation | Exception]:
        model = self._model  # one reference for the whole batch, whatever replaces it meanwhile
        enter(drafts, "history")
        await self._read_histories(drafts)
        enter(drafts, "encode")
        for draft in drafts:
            self._encode(model, draft)
        enter(drafts, "queue")
        await self._rank(model, drafts)
        enter(drafts, "respond")
        return [self._respond(model, draft) if draft.wanted else Expired() for draft in drafts]

    async def _answer_without_engine(self, drafts: Sequence[Draft]) -> list[Recommendation]:
        enter(drafts, "history")
        await self._read_histories(drafts)
        return [self._fall_back(draft, "engine_unavailable") for draft in drafts]

    def _fall_back(self, draft: Draft, reason: Degraded) -> Recommendation:
        """Answer at once from what the draft has so far. Raises HistoryBehind when that is not what was asked for."""
        draft.stopwatch.lap(draft.stage)
        if draft.question is None:
            self._check_version(draft)
            self._encode(self._model, draft)
            draft.stopwatch.lap("encode")
        draft.ranking, draft.degraded = None, reason
        answer = self._respond(self._model, draft)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _read_histories(self, drafts: Sequence[Draft]) -> None:
        """Read all histories in one round trip, for as long as the most patient may wait: it holds up no other."""
        readers = [(draft, draft.ask.user_id) for draft in drafts if draft.ask.user_id is not None and draft.wanted]
        if not readers:
            return
        within_s = READ_SHARE * max(draft.left_s for draft, _ in readers)
        try:
            with self._breaker.guard(within_s=within_s):
                histories = await self._store.read_many([user_id for _, user_id in readers], within_s=within_s)
        except StoreUnavailable as error:
            rushed = ran_out(error, within_s)  # then it is not the store that is at fault
            for draft, _ in readers:
                draft.degraded = "deadline" if rushed else "store_unavailable"
        else:
            for (draft, _), history in zip(readers, histories, strict=True):
                draft.history = history
        for draft, _ in readers:
            self._check_version(draft)

    def _check_version(self, draft: Draft) -> None:
        version = draft.ask.min_history_version
        if version is not None and (draft.history is None or draft.history.version < version):
            draft.failure = HistoryBehind()

    def _encode(self, model: LiveModel, draft: Draft) -> None:
        if draft.failure is not None:
            return
        ask = draft.ask
        history = [*(draft.history.item_ids if draft.history else ()), *(ask.items or ())]
        try:
            draft.question = encode_question(
                model.vocabulary,
                history=history,
                exclude=ask.exclude_item_ids,
                candidates=ask.candidate_item_ids,
                k=ask.k,
                exclude_history=ask.exclude_seen,
                events=_recall(draft) if model.reads_events else None,
                event_types=model.event_types,
            )
        except Exception as error:  # noqa: BLE001 - one odd request must not fail the others of its batch
            draft.failure = error
        else:
            candidates = draft.question.candidates
            not_candidates = 0 if candidates is None else len(ask.candidate_item_ids or ()) - len(candidates)
            self._metrics.items_unknown(len(history) - len(draft.question.history) + not_candidates)

    async def _rank(self, model: LiveModel, drafts: Sequence[Draft]) -> None:
        """Run the model once for all who have something to go by and still wait when it is their turn."""
        askers = [(draft, draft.question) for draft in drafts if draft.question and len(draft.question.history)]
        if not askers:
            return

        def run() -> list[tuple[Draft, Answer]]:
            enter(drafts, "inference")  # for the engine's thread; those who are not ranked wait as well
            wanted = [(draft, question) for draft, question in askers if draft.wanted]
            if not wanted:
                return []
            self._running_since_s = began_s = time.perf_counter()
            try:
                answers = model.rank([question for _, question in wanted])
            finally:
                self._running_since_s = None
            self._pace.ran(len(wanted), time.perf_counter() - began_s)
            return list(zip((draft for draft, _ in wanted), answers, strict=True))

        try:
            short = model.engine.provider != CUDA and self._pace.predict_s(len(askers)) < INLINE_S
            if short and self._executor.idle:
                ranked = run()
            else:
                ranked = await asyncio.get_running_loop().run_in_executor(self._executor, run)
        except EngineUnavailable as error:
            self._failed = True
            self._pace.forget()
            _log.error("The engine failed: popular items are answered instead", extra={"fields": {"why": str(error)}})
            for draft, _ in askers:
                draft.degraded = "engine_unavailable"
            return
        self._failed = self._failed and not ranked
        for draft, ranking in ranked:
            draft.ranking = ranking

    def _respond(self, model: LiveModel, draft: Draft) -> Recommendation | Exception:
        """Write the answer down, from the popular list where the model gave none."""
        if draft.failure is not None or draft.question is None:
            return draft.failure or RuntimeError("a question was not encoded")
        source, ranking = _rank(model, draft, draft.question)
        named = dict.fromkeys([*(draft.ask.items or ()), *(draft.ask.candidate_item_ids or ())])
        return {
            "recommendation_id": str(uuid_utils.uuid7()),
            "user_id": draft.ask.user_id,
            "items": [
                {"item_id": item_id, "score": score, "rank": rank}
                for rank, (item_id, score) in enumerate(zip(*ranking, strict=True), start=1)
            ],
            "count": len(ranking.item_ids),
            "requested": draft.ask.k,
            "source": source,
            "degraded": draft.degraded,
            "model": {"name": model.manifest.name, "version": model.manifest.version},
            "history": None if draft.history is None else _describe(draft.history),
            "unknown_item_ids": [item_id for item_id in named if item_id not in model.vocabulary],
            "took_ms": draft.stopwatch.took_ms(),
        }


def _rank(model: LiveModel, draft: Draft, question: Question) -> tuple[Source, Answer]:
    """The best rung that holds. Neighbours take a millisecond, for which there is only room while no engine works."""
    if draft.ranking is not None:
        return "model", draft.ranking
    if draft.degraded == "engine_unavailable" and len(question.history):
        ranking = model.rank_neighbours(question)
        if ranking is not None:
            return "neighbours", ranking
    return "popular", model.rank_popular(question)


def _recall(draft: Draft) -> Events:
    """What came with each item of the stored history; of the request's own items nothing is known."""
    types, values, times_ms = draft.history.recall() if draft.history else Events((), (), ())
    own = len(draft.ask.items or ())
    return Events([*types, *[""] * own], [*values, *[None] * own], [*times_ms, *[0] * own])


def _describe(history: History) -> HistoryState:
    at_ms = history.last_event_at_ms
    return {
        "version": history.version,
        "length": len(history.item_ids),
        "last_event_at": None if at_ms is None else format_rfc_3339(at_ms),
    }

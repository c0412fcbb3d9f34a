"""How an answer comes about: read the history, encode, rank, and fall back step by step where that fails.

The ladder, best first; the step taken is `source`, the reason `degraded`:
  model      from the stored history and the request's items, or from the items alone while the store is down
  popular    no known item to go by (a cold start, not degraded), no store, or no engine
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import uuid_utils

from model.contract.question import Answer, Question, encode_question
from service.answers import Degraded, HistoryState, ModelName, RankedItem, Recommendation, Source
from service.batcher import Batcher, BatcherStopped, Observers
from service.errors import EngineUnavailable, HistoryBehind, StoreUnavailable
from service.history import History, HistoryStore
from service.live_model import LiveModel
from service.metrics import Metrics
from service.schemas import RecommendRequest
from service.stopwatch import Stage, Stopwatch
from service.times import format_rfc_3339

VERSION_DEADLINE_S = 0.3
"""How long a request waits for its `min_history_version`."""
VERSION_PAUSE_S = 0.02

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Draft:
    """An answer while it is made."""

    ask: RecommendRequest
    stopwatch: Stopwatch
    history: History | None = None
    question: Question | None = None
    ranking: Answer | None = None
    degraded: Degraded | None = None
    failure: Exception | None = None


class Recommender:
    """Answers RecommendRequests, several in one model run."""

    def __init__(
        self, model: LiveModel, *, store: HistoryStore, metrics: Metrics, executor: Executor, max_batch: int
    ) -> None:
        """Take an executor of one thread: the engine's, so that a run does not hold up the event loop."""
        self._model = model
        self._store = store
        self._metrics = metrics
        self._executor = executor
        self._batcher: Batcher[_Draft, Recommendation] = Batcher(
            self._answer_batch,
            max_batch=max_batch,
            observers=Observers(on_batch=metrics.batch_started, on_wait=metrics.waited, on_depth=metrics.queue_changed),
        )
        self.engine_fails = False
        """Whether the last run failed."""

    @property
    def alive(self) -> bool:
        """Whether the model can be asked at all."""
        return self._batcher.alive

    def start(self) -> None:
        """Begin to answer, on the running loop."""
        self._batcher.start()

    async def close(self) -> None:
        """Answer what waits, then stop, the engine's thread included."""
        await self._batcher.close()
        self._executor.shutdown(wait=False)

    async def recommend(self, ask: RecommendRequest, stopwatch: Stopwatch) -> Recommendation:
        """One answer. Raises HistoryBehind when the history does not get as new as asked for in time."""
        while True:
            draft = _Draft(ask, stopwatch)
            try:
                return await self._batcher.submit(draft)
            except HistoryBehind:
                if time.perf_counter() + VERSION_PAUSE_S > stopwatch.started + VERSION_DEADLINE_S:
                    raise
                await asyncio.sleep(VERSION_PAUSE_S)
                stopwatch.lap("history")  # it is the history that is waited for, not the engine
            except BatcherStopped:
                return await self._answer_without_engine(draft)

    async def _answer_batch(self, drafts: Sequence[_Draft]) -> Sequence[Recommendation | Exception]:
        model = self._model  # one reference for the whole batch, whatever replaces it meanwhile
        _lap(drafts, "queue")
        await self._read_histories(drafts)
        _lap(drafts, "history")
        for draft in drafts:
            self._encode(model, draft)
        _lap(drafts, "encode")
        await self._rank(model, drafts)
        return [self._respond(model, draft) for draft in drafts]

    async def _answer_without_engine(self, draft: _Draft) -> Recommendation:
        await self._read_histories([draft])
        draft.stopwatch.lap("history")
        self._encode(self._model, draft)
        draft.stopwatch.lap("encode")
        draft.degraded = "engine_unavailable"
        answer = self._respond(self._model, draft)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _read_histories(self, drafts: Sequence[_Draft]) -> None:
        """Read all histories in one round trip."""
        readers = [(draft, draft.ask.user_id) for draft in drafts if draft.ask.user_id is not None]
        if not readers:
            return
        try:
            histories = await self._store.read_many([user_id for _, user_id in readers])
        except StoreUnavailable:
            for draft, _ in readers:
                draft.degraded = "store_unavailable"
        else:
            for (draft, _), history in zip(readers, histories, strict=True):
                draft.history = history
        for draft, _ in readers:
            version = draft.ask.min_history_version
            if version is not None and (draft.history is None or draft.history.version < version):
                draft.failure = HistoryBehind()

    def _encode(self, model: LiveModel, draft: _Draft) -> None:
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
            )
        except Exception as error:  # noqa: BLE001 - one odd request must not fail the others of its batch
            draft.failure = error
        else:
            candidates = draft.question.candidates
            not_candidates = 0 if candidates is None else len(ask.candidate_item_ids or ()) - len(candidates)
            self._metrics.items_unknown(len(history) - len(draft.question.history) + not_candidates)

    async def _rank(self, model: LiveModel, drafts: Sequence[_Draft]) -> None:
        """Run the model once for all who have something to go by."""
        ranked = [(draft, draft.question) for draft in drafts if draft.question and len(draft.question.history)]
        if not ranked:
            return

        def run() -> list[Answer]:
            _lap(drafts, "queue")  # for the engine's thread; those who are not ranked wait as well
            return model.rank([question for _, question in ranked])

        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._executor, run)
        except EngineUnavailable as error:
            self.engine_fails = True
            _log.error("The engine failed: popular items are answered instead", extra={"fields": {"why": str(error)}})
            for draft, _ in ranked:
                draft.degraded = "engine_unavailable"
            return
        finally:
            _lap(drafts, "inference")
        self.engine_fails = False
        for (draft, _), answer in zip(ranked, answers, strict=True):
            draft.ranking = answer

    def _respond(self, model: LiveModel, draft: _Draft) -> Recommendation | Exception:
        """Write the answer down, from the popular list where the model gave none."""
        if draft.failure is not None or draft.question is None:
            return draft.failure or RuntimeError("a question was not encoded")
        ranking = draft.ranking or model.rank_popular(draft.question)
        source: Source = "popular" if draft.ranking is None else "model"
        self._metrics.answered(source=source, degraded=draft.degraded)
        named = dict.fromkeys([*(draft.ask.items or ()), *(draft.ask.candidate_item_ids or ())])
        pairs = zip(ranking.item_ids, ranking.scores, strict=True)
        return Recommendation(
            recommendation_id=str(uuid_utils.uuid7()),
            user_id=draft.ask.user_id,
            items=[RankedItem(item_id, score, rank) for rank, (item_id, score) in enumerate(pairs, start=1)],
            count=len(ranking.item_ids),
            requested=draft.ask.k,
            source=source,
            degraded=draft.degraded,
            model=ModelName(model.manifest.name, model.manifest.version),
            history=None if draft.history is None else _describe(draft.history),
            unknown_item_ids=[item_id for item_id in named if item_id not in model.vocabulary],
            took_ms=draft.stopwatch.took_ms(),
        )


def _lap(drafts: Sequence[_Draft], stage: Stage) -> None:
    """A batch's work is part of the time of each request in it."""
    for draft in drafts:
        draft.stopwatch.lap(stage)


def _describe(history: History) -> HistoryState:
    at_ms = history.last_event_at_ms
    return HistoryState(history.version, len(history.item_ids), None if at_ms is None else format_rfc_3339(at_ms))

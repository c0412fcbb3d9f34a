"""Takes batches of requests through their stages: read the histories, encode, rank, respond.

The model runs at most once for a batch. Where a stage fails, an answer names the next best source as `source`, and the
reason as `degraded`:
  model      from the stored history and the request's items, or from the items alone while the store is down
  neighbours from the bundle's sessions most similar to the history, if the engine fails and the bundle has sessions
  popular    no known item (a cold start, not degraded), no store, no engine, no time left, or over a limit
Sequential rules rank only for requests that name them.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from model.contract.allowed import Allowed
from model.contract.event_inputs import Events
from model.contract.query import Answer, Question, encode_question
from service.api.ranker import NOT_PUBLISHED
from service.api.responses import Degraded, Recommendation
from service.catalogue.live import LiveCatalogue
from service.errors import (
    CatalogueBehind,
    EngineUnavailable,
    HistoryBehind,
    Invalid,
    Problem,
    StoreUnavailable,
)
from service.inference.counted import Counted
from service.inference.item_masks import Plan, plan_of
from service.inference.model import LiveModel
from service.inference.runner import EngineRunner
from service.ranking.batcher import Expired
from service.ranking.pending import PendingRequest, start_stage
from service.ranking.recommendation_id import RecommendationIds
from service.ranking.response import make_response
from service.ranking.restrictions import Restrictions
from service.ranking.role import Role
from service.ranking.rules import check_published, rank_by_rules
from service.store.circuit_breaker import CircuitBreaker, ran_out
from service.store.history import HistoryStore
from service.store.records import History

WITHOUT_MODEL = ("neighbours", "rules", "popular")
"""Rankers that a request may name and that leave the engine alone."""
READ_SHARE = 0.4
"""Share of the remaining time that the store may take, so that enough remains to answer without it."""
LAST_SHARE = 0.1
LAST_MOMENT_S = 0.005
"""How long an answer whose time is over may yet look at the catalogue: a share of its time limit, and no less."""


class Pipeline:
    """Answers pending requests by one model, the store and what replaces each of them."""

    def __init__(
        self,
        model: LiveModel,
        *,
        store: HistoryStore,
        breaker: CircuitBreaker,
        catalogue: LiveCatalogue,
        runner: EngineRunner,
        restrictions: Restrictions,
        on_filter: Callable[[Plan], None],
    ) -> None:
        """`breaker` guards reads of histories. `on_filter` is told how a filter is applied, for each request."""
        self._model = model
        self._catalogue = catalogue
        self._store = store
        self._breaker = breaker
        self._runner = runner
        self._restrictions = restrictions
        self._on_filter = on_filter
        self._counted_turn = asyncio.Lock()  # a thread at a time: comparisons must not crowd out answers
        self.role = Role("champion", 0, RecommendationIds(""))
        """What the answers call the model."""

    async def answer(self, batch: Sequence[PendingRequest]) -> Sequence[Recommendation | Exception]:
        """The answer or exception of each request, in order; Expired for those that nobody waits for any more."""
        model = self._model
        await self.read_histories(batch)
        start_stage(batch, "encode")
        available = self._catalogue.find_allowed(model.vocabulary)
        for pending in batch:
            if pending.request.filter is None and not pending.request.boosts:
                pending.allowed = available
            else:
                await self._restrict(pending, available)
            _encode(model, pending)
        start_stage(batch, "queue")
        await self._rank(model, batch)
        start_stage(batch, "respond")
        return [make_response(model, pending, self.role) if pending.wanted else Expired() for pending in batch]

    async def answer_degraded(self, pending: PendingRequest, reason: Degraded) -> Recommendation:
        """Answer at once from what is known so far, once what a filter allows is known, too.

        Raises VersionBehind if that is too old, and what `Restrictions.find` does. Await `read_histories` or
        `confirm_catalogue` before: items that are not available are left out as of then.
        """
        pending.timer.record(pending.stage)
        if pending.question is None:
            _check_versions(pending)
            await self.encode(pending)
            pending.timer.record("encode")
        pending.ranking, pending.degraded = None, reason
        answer = make_response(self._model, pending, self.role)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def answer_without_model(self, pending: PendingRequest) -> Recommendation:
        """Answer by the ranker of WITHOUT_MODEL that the request names.

        Raises VersionBehind, Invalid if the bundle lacks the ranker, and what `Restrictions.find` does.
        """
        ranker = pending.request.ranker
        counted = self._model.find_counted(ranker)
        if counted is None and ranker in NOT_PUBLISHED:
            raise Invalid([NOT_PUBLISHED[ranker]])
        await self.read_histories([pending])
        if not pending.wanted:  # its history may not have been read
            return await self.answer_degraded(pending, "deadline")
        start_stage([pending], "encode")
        await self.encode(pending)
        if counted is not None and pending.question and len(pending.question.history):
            await self._rank_counted(pending, pending.question, counted)
        start_stage([pending], "respond")
        answer = make_response(self._model, pending, self.role)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def encode(self, pending: PendingRequest) -> None:
        """Make the question of a request about what it may be answered with, or note its failure.

        Await `read_histories` or `confirm_catalogue` before.
        """
        await self._restrict(pending, self._catalogue.find_allowed(self._model.vocabulary))
        check_published(self._model, pending)
        _encode(self._model, pending)

    async def _restrict(self, pending: PendingRequest, available: Allowed | None) -> None:
        """Find the items that the request may be answered with, by boost, too. What speaks against is its failure."""
        pending.allowed = available
        wanted, boosts = pending.request.filter, pending.request.boosts
        if wanted is None and not boosts:
            return
        try:
            if (view := pending.catalogue) is not None:
                seen = await self._restrictions.follow(view, within_s=READ_SHARE * max(0.0, pending.left_s))
                if seen is not view:  # else the answer keeps what it has, which may be newer by now
                    pending.catalogue = seen
                    _check_versions(pending)
            if wanted is not None:
                pending.allowed = await self._restrictions.find(wanted, available)
                self._on_filter(plan_of(pending.allowed))
            if boosts:
                pending.boosted = await self._restrictions.divide(boosts, pending.allowed, available)
        except Problem as problem:
            pending.failure = problem

    async def _rank_counted(self, pending: PendingRequest, question: Question, counted: Counted) -> None:
        """Rank by what counts, in another thread, since it takes milliseconds of the event loop."""
        start_stage([pending], "queue")
        try:
            async with asyncio.timeout(max(0.0, pending.left_s)), self._counted_turn:
                start_stage([pending], "inference")
                rank: Callable[[Question], Answer] = partial(self._model.rank_counted, counted)
                if pending.request.ruled:
                    rank = partial(rank_by_rules, self._model, pending, rank=rank)
                pending.ranking = await asyncio.to_thread(rank, question)
                pending.ranked_by = counted.name
        except TimeoutError:
            pending.degraded = "deadline"

    async def read_histories(self, batch: Sequence[PendingRequest]) -> None:
        """Read all histories and the catalogue's version in one round trip, within the latest deadline of the batch.

        A catalogue that has changed since the last time takes another.
        """
        start_stage(batch, "history")
        readers = [
            (pending, pending.request.user_id)
            for pending in batch
            if pending.request.user_id is not None and pending.wanted
        ]
        if readers:
            await self._read(readers)
        if batch:
            await self._follow_catalogue(batch)
        for pending in batch:
            _check_versions(pending)

    async def confirm_catalogue(self, pending: PendingRequest) -> None:
        """Look at the catalogue for an answer that is given without reading anything, though its time may be over."""
        if pending.question is None or (pending.catalogue is not None and pending.catalogue.behind):
            await self._follow_catalogue([pending])
            pending.question = None  # a batch may have encoded it meanwhile, by an older state than it now names

    async def renew_catalogue(self, pending: PendingRequest) -> None:
        """Get to know every change of the catalogue up to now, within the time that a request has left."""
        await self._catalogue.follow(time.perf_counter(), within_s=READ_SHARE * max(0.0, pending.left_s))

    async def _follow_catalogue(self, batch: Sequence[PendingRequest]) -> None:
        since_s = max([pending.timer.started for pending in batch])
        if not self._catalogue.is_current(since_s):
            start_stage(batch, "history")
            last_s = max(LAST_MOMENT_S, LAST_SHARE * max(pending.request.timeout_ms for pending in batch) / 1000)
            within_s = max(last_s, READ_SHARE * max(pending.left_s for pending in batch))
            await self._catalogue.follow(since_s, within_s=within_s)
        view = self._catalogue.view(since_s)
        if view is not None:
            for pending in batch:
                pending.catalogue = view

    async def _read(self, readers: Sequence[tuple[PendingRequest, str]]) -> None:
        within_s = READ_SHARE * (max([pending.expires_s for pending, _ in readers]) - time.perf_counter())
        try:
            with self._breaker.guard(within_s=within_s):
                histories = await self._store.read_many([user_id for _, user_id in readers], within_s=within_s)
        except StoreUnavailable as error:
            rushed = ran_out(error, within_s)  # then the store is not at fault
            if not rushed:
                self._catalogue.note_failure(time.perf_counter())
            for pending, _ in readers:
                pending.degraded = "deadline" if rushed else "store_unavailable"
        else:
            for (pending, _), history in zip(readers, histories, strict=True):
                if isinstance(history, History):
                    pending.history = history
                else:  # only this user's history is unreadable
                    pending.degraded = "store_unavailable"

    async def _rank(self, model: LiveModel, batch: Sequence[PendingRequest]) -> None:
        """Run the model once for all requests with a known item that still wait when the run begins."""
        askers = [
            (pending, pending.question) for pending in batch if pending.question and len(pending.question.history)
        ]
        if not askers:
            return
        ranked: list[PendingRequest] = []

        def choose() -> list[Question]:
            start_stage(batch, "inference")  # waiting for the engine's thread; requests that are not ranked wait, too
            wanted = [(pending, question) for pending, question in askers if pending.wanted]
            ranked.extend(pending for pending, _ in wanted)
            return [question for _, question in wanted]

        try:
            answers = await self._runner.rank(model, choose, most=len(askers))
        except EngineUnavailable:
            for pending, _ in askers:
                pending.degraded = "engine_unavailable"
            return
        for pending, answer in zip(ranked, answers, strict=True):
            pending.ranking = answer


def _check_versions(pending: PendingRequest) -> None:
    version = pending.request.min_history_version
    if version is not None and (pending.history is None or pending.history.version < version):
        pending.failure = HistoryBehind()
    version = pending.request.min_catalogue_version
    if version and (pending.catalogue is None or pending.catalogue.version < version):
        pending.failure = CatalogueBehind()


def _encode(model: LiveModel, pending: PendingRequest) -> None:
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
            allowed=pending.allowed,
            asked_ms=pending.asked_ms if model.reads_events else 0,
        )
    except Exception as error:  # noqa: BLE001 - one request must not fail the others of its batch
        pending.failure = error


def _events_of(pending: PendingRequest) -> Events:
    """The event features of the stored history; unknown ones for the request's own items."""
    events = pending.history.events if pending.history else None
    types, values, times_ms = events or Events((), (), ())
    own = len(pending.request.items or ())
    return Events([*types, *[""] * own], [*values, *[None] * own], [*times_ms, *[0] * own])

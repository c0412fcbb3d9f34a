"""A model at work: the model, its engine's thread, its pipeline and its batcher. They begin and end together."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from model.contract.query import Answer, Question
from service.api.requests import MAX_TIMEOUT_MS, RecommendRequest
from service.api.responses import AnsweringVariant, Recommendation
from service.catalogue.live import LiveCatalogue
from service.inference.loading import Loaded
from service.inference.model import LiveModel
from service.inference.runner import EngineRunner
from service.inference.similar_items import SimilarItems
from service.ranking.batcher import Batcher, Observers, Q, R
from service.ranking.pending import PendingRequest
from service.ranking.pipeline import Pipeline
from service.ranking.restrictions import Restrictions
from service.ranking.role import Role
from service.ranking.ruled_pipeline import RuledPipeline
from service.recommend.monitor import Monitor
from service.store.circuit_breaker import CircuitBreaker
from service.store.history import HistoryStore
from service.store.variant_counts import VariantTally
from service.telemetry.metrics import Metrics

P = TypeVar("P", bound=Pipeline)

CANDIDATE_WAITING = 0.25
"""Least share of the champion's queue that a candidate's has, which is as large as its share of users where that is
more: requests that wait for a slow candidate hold memory."""


class Variant:
    """Everything that belongs to one model, so that its speed and its faults are told from those of the next one.

    Nothing in it refers back to it: without the last request that uses it, its memory is free at once.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        store: HistoryStore,
        breaker: CircuitBreaker,
        catalogue: LiveCatalogue,
        metrics: Metrics,
        max_batch: int,
        max_waiting: int,
    ) -> None:
        """`breaker` guards reads of histories. At most `max_waiting` requests wait for a batch."""
        self.model: LiveModel = loaded.model
        self._thread = loaded.thread
        self._released: Future[None] | None = None
        self.monitor = Monitor(metrics)
        stuck_after_s = MAX_TIMEOUT_MS / 1000  # nobody waits for longer
        self.runner = EngineRunner(loaded.thread, stuck_after_s=stuck_after_s, on_run=self.monitor.ran)
        restrictions = Restrictions(loaded.model)

        def make_pipeline(kind: type[P]) -> P:
            return kind(
                loaded.model,
                store=store,
                breaker=breaker,
                catalogue=catalogue,
                runner=self.runner,
                restrictions=restrictions,
                on_filter=metrics.filtered,
            )

        self.pipeline = make_pipeline(Pipeline)
        self._ruled_pipeline = make_pipeline(RuledPipeline)

        def make_batcher(
            process: Callable[[Sequence[Q]], Awaitable[Sequence[R | Exception]]], *, in_flight: int = 2
        ) -> Batcher[Q, R]:
            observers = Observers(on_batch=metrics.batch_started, on_wait=metrics.waited, on_depth=_Depth(metrics))
            return Batcher(
                process, max_batch=max_batch, max_waiting=max_waiting, in_flight=in_flight, observers=observers
            )

        self.batcher = make_batcher(self.pipeline.answer)
        self._ruled_batcher = make_batcher(self._ruled_pipeline.answer)
        self._batchers: list[Batcher[Any, Any]] = [self.batcher, self._ruled_batcher]
        self.similar: Batcher[Question, Answer] | None = None
        """Ranks the items like those of a question's history; None where the bundle has no graph for it."""
        if loaded.model.similar is not None:  # one run at a time: no other run waits for more than one of them
            self.similar = make_batcher(partial(_rank_similar, loaded.model.similar, self.runner), in_flight=1)
            self._batchers.append(self.similar)
        self.max_batch = max_batch
        self._max_waiting = max_waiting

    @property
    def version(self) -> str:
        """The version of its bundle."""
        return self.model.manifest.version

    @property
    def name(self) -> AnsweringVariant:
        """What its answers call it."""
        return self.pipeline.role.name

    def assume(
        self, role: Role, tally: VariantTally | None, *, champion: "Variant | None" = None, share: float = 1.0
    ) -> None:
        """Answer in this role from now on; as a candidate, a share of users beside this champion.

        The champion alone may run on the event loop's thread, where a run that turns slow holds up all others.
        """
        self.pipeline.role = self._ruled_pipeline.role = role
        self.monitor.assume(role, tally, None if champion is None else champion.runner)
        self.runner.may_block = role.name == "champion"
        for batcher in self._batchers:
            batcher.max_waiting = max(1, int(max(share, CANDIDATE_WAITING) * self._max_waiting))

    def start(self) -> None:
        """Begin to answer, on the running loop."""
        for batcher in self._batchers:
            batcher.start()

    def batcher_for(self, request: RecommendRequest) -> Batcher[PendingRequest, Recommendation]:
        """Where a lone request waits: those with business rules have batches of their own."""
        return self._ruled_batcher if request.ruled else self.batcher

    async def close(self, *, within_s: float) -> bool:
        """Refuse new requests and answer the waiting ones, then free the engine and end its thread.

        False if they take longer: a hanging run is abandoned, and the engine is freed when it ends.
        """
        self.monitor.end()
        ended = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(*(batcher.close() for batcher in self._batchers))
                ended = True
        if self._released is None:  # the thread takes no calls after its end
            self._released = self._thread.submit(self.model.release)
            self.runner.close()
        if ended:
            await asyncio.wrap_future(self._released)
        return ended


async def _rank_similar(
    similar: SimilarItems, runner: EngineRunner, questions: Sequence[Question]
) -> list[Answer | Exception]:
    """On the engine's thread, behind the runs that wait there. Raises EngineUnavailable."""
    return [*await asyncio.wrap_future(runner.start(partial(similar.rank, questions)))]


class _Depth:
    """Passes on how a queue's depth changes: the metric has that of all queues."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._depth = 0

    def __call__(self, depth: int) -> None:
        """The queue is so deep now."""
        self._metrics.queue_changed(depth - self._depth)
        self._depth = depth

"""Answers requests within their deadlines: batches them, lets them wait for their history, and falls back in time.

The deadline is checked before each piece of work, and no wait goes beyond it. What the work is: pipeline.py.

A request takes its variant once and keeps it, whatever is swapped meanwhile: what one model encoded no other decodes.

At most MAX_BATCHED requests of batches are in flight. The next batch waits until the earliest of its own deadlines.
Work for batches is divided into time slices, so that single requests run in between.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from service.api.requests import MAX_REQUESTS, RecommendRequest
from service.api.responses import Recommendation
from service.errors import CatalogueBehind, EngineUnavailable, Invalid, Overloaded, VersionBehind
from service.ranking.batcher import BatcherStopped, Expired, QueueFull
from service.ranking.pending import PendingRequest
from service.ranking.pipeline import WITHOUT_MODEL
from service.recommend.batch import Outcome, ask_all
from service.recommend.candidate import PATIENCE, ask_candidate
from service.recommend.explainer import Explainer
from service.recommend.time_slices import TimeSlices
from service.recommend.variant import Variant
from service.recommend.variants import Choice, Variants
from service.recommend.weighted_semaphore import WeightedSemaphore
from service.telemetry.metrics import Metrics
from service.telemetry.model_metrics import VariantFallback
from service.telemetry.stage_timer import StageTimer

T = TypeVar("T")

VERSION_PAUSE_S = 0.02
MAX_BATCHED = 2 * MAX_REQUESTS
"""Maximum requests of POST /recommend/batch in flight: one batch can be read and written while another is answered.
All of them may expire at once, and popular items for so many take a tenth of a second."""


class Recommender:
    """Answers RecommendRequests by the variants in use. Holds what belongs to the service, whatever its model."""

    def __init__(self, variants: Variants, *, metrics: Metrics, max_version_waiters: int) -> None:
        """At most `max_version_waiters` requests wait for a history or the catalogue to reach the version they want."""
        self._variants = variants
        variants.take_roles()
        self._metrics = metrics
        self._room_for_batches = WeightedSemaphore(MAX_BATCHED)
        self.reading = TimeSlices()
        """Time slices for reading batches. Answers have their own, so that begun batches end before new ones begin."""
        self._answering = TimeSlices()
        self._max_version_waiters = max_version_waiters
        self._version_waiters = 0
        self._explainer = Explainer(metrics)

    @property
    def variants(self) -> Variants:
        """Who answers now."""
        return self._variants

    @property
    def alive(self) -> bool:
        """Whether the champion's batcher accepts requests."""
        return self._variants.champion.batcher.alive

    @property
    def engine_fails(self) -> bool:
        """Whether the champion's last run failed or its current one hangs."""
        return self._variants.champion.runner.fails

    def start(self) -> None:
        """Begin to answer, on the running loop."""
        for variant in self._variants.all:
            variant.start()

    def exchange(self, variants: Variants) -> Variants:
        """Let other variants answer from now on, on the loop. Returns the ones before; who closes them is the caller.

        New ones among them must have been started.
        """
        before, self._variants = self._variants, variants
        variants.take_roles()
        return before

    async def close(self) -> None:
        """Answer waiting requests, then stop, including the engines' threads. Hanging runs are abandoned."""
        await asyncio.gather(*(variant.close(within_s=variant.runner.stuck_after_s) for variant in self._variants.all))

    async def recommend(self, request: RecommendRequest, timer: StageTimer) -> Recommendation:
        """One answer, within its deadline. Raises VersionBehind if what it wants is not that new by then.

        Raises Invalid if the model that answers cannot do what the request names.
        """
        if request.ranker == "auto":
            choice = self._variants.pick(request.user_id, request.variant)
        else:  # who names a ranker compares: the answer counts for no trial
            choice = self._variants.pick_compared(request.ranker, request.variant)
        try:
            answer = await self._attempt(choice, request, timer)
        except VersionBehind as behind:
            attempt = partial(self._attempt, choice, request, timer)
            answer = await self.await_version(attempt, request, timer, type(behind))
        self._count(choice, answer)
        return answer

    async def recommend_many(
        self, requests: Sequence[RecommendRequest], *, started_s: float
    ) -> AsyncGenerator[Recommendation]:
        """Yield the answer to each of at most MAX_REQUESTS requests, in order.

        Their time began at `started_s`. Raises Overloaded if there is no room for all in time, and VersionBehind or
        Invalid, with pointers into the batch, if one of them would. Close the generator (`contextlib.aclosing`): until
        then its requests count as in flight.
        """
        batch = [PendingRequest(request, StageTimer(started_s)) for request in requests]
        async with self._take_room(batch):
            variants = self._variants  # taken when the batch has room
            choices = [variants.pick(pending.request.user_id, pending.request.variant) for pending in batch]
            async with contextlib.aclosing(
                ask_all(choices, batch, find_champion=lambda: self._variants.champion)
            ) as outcomes:
                index = 0
                async for choice, pending, outcome in outcomes:
                    await self._answering.pause()
                    try:
                        answer = await self._conclude(choice, pending, outcome)
                    except Invalid as invalid:
                        raise invalid.under(f"/requests/{index}") from None
                    pending.question = pending.allowed = None  # what is allowed takes a byte an item of the catalogue
                    yield answer
                    index += 1

    async def _conclude(self, choice: Choice, pending: PendingRequest, outcome: Outcome) -> Recommendation:
        """The answer to a request of a batch, which is counted. Raises what no fallback covers."""
        variant, answer, reason = outcome
        if isinstance(answer, VersionBehind):
            attempt = partial(self._attempt, choice, pending.request, pending.timer)
            later: Recommendation = await self.await_version(attempt, pending.request, pending.timer, type(answer))
            answer = later
        elif isinstance(answer, Exception):
            answer = await self.fall_back(variant, pending, answer)
        if reason is not None:
            self._note_fallback(choice, reason, answer)
        self._count(choice, answer)
        return answer

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

    def _count(self, choice: Choice, answer: Recommendation) -> None:
        """Count an answer, and for the trial what its user is assigned to, whoever made it."""
        if choice.tally is not None and choice.assigned is not None:
            choice.tally.add(choice.assigned, "answers")
            if answer["degraded"] is not None:
                choice.tally.add(choice.assigned, "degraded")
                if answer["degraded"] == "engine_unavailable" and choice.assigned == "champion":
                    choice.tally.add("champion", "failures")
            if choice.assigned == "candidate" and not choice.on_trial:
                self._metrics.model.fell_back("not_loaded")
        model = answer["model"]
        self._metrics.answered(
            source=answer["source"], degraded=answer["degraded"], version=model["version"], variant=model["variant"]
        )
        self._metrics.items_unknown(len(answer["unknown_item_ids"]))
        if "catalogue" in answer and answer["catalogue"]["behind"]:
            self._metrics.catalogue.answered_behind()

    def _note_fallback(self, choice: Choice, reason: VariantFallback, answer: Recommendation) -> None:
        """Count an answer that the champion made for the candidate.

        It is the model's failure if it failed, or was slow where the champion was in time. While the breaker is open or
        the queue full, it was not asked.
        """
        self._metrics.model.fell_back(reason)
        if choice.tally is not None and answer["degraded"] is None and reason in ("failed", "slow"):
            choice.tally.add("candidate", "failures")

    async def _attempt(self, choice: Choice, request: RecommendRequest, timer: StageTimer) -> Recommendation:
        """One answer from the current history. Raises VersionBehind if that is too old."""
        if not choice.on_trial:
            return await self._ask(choice.variant, request, timer)
        pending = PendingRequest(request, timer, PATIENCE)
        outcome = await ask_candidate(choice.variant, pending)
        if not isinstance(outcome, str):
            return await self._explainer.explain(choice.variant, pending, outcome) if request.explain else outcome
        answer = await self._ask(self._variants.champion, request, timer)
        self._note_fallback(choice, outcome, answer)
        return answer

    async def _ask(self, variant: Variant, request: RecommendRequest, timer: StageTimer) -> Recommendation:
        """One answer by a variant, or what replaces it there. Raises VersionBehind."""
        pending = PendingRequest(request, timer)
        try:
            if request.ranker in WITHOUT_MODEL:
                return await variant.pipeline.answer_without_model(pending)
            if variant.runner.stuck:
                return await self._answer_without_engine(variant, pending)
            answer = await variant.batcher_for(request).submit(pending, expires_s=pending.expires_s)
            return await self._explainer.explain(variant, pending, answer) if request.explain else answer
        except BatcherStopped as refusal:
            now = self._variants.pick_compared(request.ranker, request.variant).variant
            if now is variant or pending.question is not None:
                return await self.fall_back(variant, pending, refusal)
        except (Expired, QueueFull) as refusal:
            return await self.fall_back(variant, pending, refusal)
        finally:
            pending.abandoned = True
        return await self._ask(now, request, timer)  # it waited for its history, and its variant retired meanwhile

    async def await_version(
        self,
        attempt: Callable[[], Awaitable[T]],
        request: RecommendRequest,
        timer: StageTimer,
        behind: type[VersionBehind],
    ) -> T:
        """What `attempt` gives once history and catalogue are new enough; until then it raises VersionBehind.

        Raises the last of these, or `behind`, when the request's time is over, and at once if too many wait.
        """
        if self._version_waiters >= self._max_version_waiters:
            self._metrics.shed("waiters_full")
            raise behind
        pending = PendingRequest(request, timer)  # knows how much time is left
        self._version_waiters += 1
        try:
            while pending.left_s > VERSION_PAUSE_S:
                await asyncio.sleep(VERSION_PAUSE_S)
                timer.record("history")  # the wait is for the history, not for the engine
                if behind is CatalogueBehind:  # what a request needs to know by itself is what was before it came
                    await self._variants.champion.pipeline.renew_catalogue(pending)
                try:
                    return await attempt()
                except VersionBehind as still:
                    behind = type(still)
        finally:
            self._version_waiters -= 1
        raise behind

    async def fall_back(self, variant: Variant, pending: PendingRequest, outcome: Exception) -> Recommendation:
        """The answer when a batcher of the variant gives none. Raises exceptions that no fallback covers."""
        if isinstance(outcome, Expired | QueueFull):
            await variant.pipeline.confirm_catalogue(pending)
        match outcome:
            case Expired():
                return await variant.pipeline.answer_degraded(pending, "deadline")
            case QueueFull():
                self._metrics.shed("queue_full")
                return await variant.pipeline.answer_degraded(pending, "overloaded")
            case BatcherStopped():
                return await self._answer_without_engine(variant, pending)
            case EngineUnavailable():
                return await variant.pipeline.answer_degraded(pending, "engine_unavailable")
        raise outcome

    async def _answer_without_engine(self, variant: Variant, pending: PendingRequest) -> Recommendation:
        await variant.pipeline.read_histories([pending])
        return await variant.pipeline.answer_degraded(pending, "engine_unavailable")

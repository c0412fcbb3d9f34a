"""Adds the reasons to an answer of the model, within the request's deadline.

One run at a time explains, whoever asks: so no other run waits for more than one of them. Where time runs out, the
answer goes without reasons.
"""

import asyncio
import logging
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from service.api.responses import Recommendation
from service.inference.model import Explanation, LiveModel
from service.ranking.pending import PendingRequest
from service.recommend.variant import Variant
from service.recommend.weighted_semaphore import WeightedSemaphore
from service.telemetry.metrics import Explained, Metrics

_log = logging.getLogger(__name__)


class Explainer:
    """Explains the answers of a worker, each by the model that ranked it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._turn = WeightedSemaphore(1)

    async def explain(self, variant: Variant, pending: PendingRequest, answer: Recommendation) -> Recommendation:
        """The answer that a variant gave, with reasons if its model ranked the items and there is time."""
        if answer["source"] == "model":
            found = await self._find_reasons(variant, pending)
            if isinstance(found, Explanation):
                _fill_in(answer, found)
            self._metrics.explained("explained" if isinstance(found, Explanation) else found)
            answer["took_ms"] = pending.timer.took_ms()
        return answer

    async def _find_reasons(self, variant: Variant, pending: PendingRequest) -> Explanation | Explained:
        if not variant.model.engine.scores_candidates:
            return "unsupported"
        whole = PendingRequest(pending.request, pending.timer)  # a candidate's own has part of the time only
        pending.timer.record("respond")
        try:
            await self._turn.acquire(1, within_s=whole.left_s)
        except TimeoutError:
            return "timeout"
        finally:
            pending.timer.record("queue")
        if not variant.batcher.alive:  # it retires, and its thread takes no more calls
            self._turn.release(1)
            return "failed"
        job = self._begin(variant, pending, whole)
        try:
            ended = asyncio.wrap_future(job)
            await asyncio.wait([ended], timeout=max(0.0, whole.left_s))
            return ended.result() if ended.done() else "timeout"
        finally:
            job.cancel()  # a run that has begun goes on, and keeps its turn
            pending.timer.record("inference")

    def _begin(
        self, variant: Variant, pending: PendingRequest, whole: PendingRequest
    ) -> Future[Explanation | Explained]:
        """Explain on the engine's thread. The turn is over when the run is, even if nobody waits for it."""
        loop = asyncio.get_running_loop()

        def end_turn(_job: object) -> None:
            with suppress(RuntimeError):  # the loop may have ended before a run that hung
                loop.call_soon_threadsafe(self._turn.release, 1)

        job = variant.runner.start(partial(_explain, variant.model, pending, whole))
        job.add_done_callback(end_turn)
        return job


def _explain(model: LiveModel, pending: PendingRequest, whole: PendingRequest) -> Explanation | Explained:
    if whole.left_s <= 0 or pending.question is None or pending.ranking is None:
        return "timeout"
    try:
        return model.explain(pending.question, pending.ranking)
    except Exception as error:  # noqa: BLE001 - an answer does not fail for want of its reasons
        _log.error("An answer could not be explained", exc_info=error)
        return "failed"


def _fill_in(answer: Recommendation, explanation: Explanation) -> None:
    answer["explained"] = explanation.tried
    for item, reasons in zip(answer["items"], explanation.reasons, strict=True):
        item["reasons"] = [{"item_id": item_id, "weight": weight} for item_id, weight in reasons]

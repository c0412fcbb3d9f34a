"""Asks a candidate for part of a request's time. Where it gives no answer, there is time left for the champion's."""

import contextlib
import logging
from collections.abc import Sequence

from service.api.responses import Recommendation
from service.errors import Invalid, Overloaded, VersionBehind
from service.ranking.batcher import BatcherStopped, Expired, QueueFull
from service.ranking.pending import PendingRequest
from service.recommend.variant import Variant
from service.telemetry.model_metrics import VariantFallback

PATIENCE = 0.5
"""Share of the time left that a candidate may take."""

_log = logging.getLogger(__name__)


async def ask_candidate(candidate: Variant, pending: PendingRequest) -> Recommendation | VariantFallback:
    """The candidate's answer to a request with a PATIENCE, or why it gave none. Raises VersionBehind."""
    reason = _find_obstacle(candidate)
    if reason is not None:
        return reason
    batcher = candidate.batcher_for(pending.request)
    try:
        outcome: Recommendation | Exception = await batcher.submit(pending, expires_s=pending.expires_s)
    except VersionBehind:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a candidate does, its users get an answer
        outcome = error
    finally:
        pending.abandoned = True
    return _judge(candidate, outcome)


async def ask_candidate_many(
    candidate: Variant, originals: Sequence[PendingRequest]
) -> list[Recommendation | VariantFallback | VersionBehind]:
    """The candidate's answer to each request of a batch, or why it gave none."""
    reason = _find_obstacle(candidate)
    if reason is not None:
        return [reason] * len(originals)
    batch = [PendingRequest(original.request, original.timer, PATIENCE) for original in originals]
    answers: list[Recommendation | VariantFallback | VersionBehind] = []
    try:
        questions = [(pending, pending.expires_s) for pending in batch]
        async with contextlib.aclosing(candidate.batcher.submit_many(questions)) as outcomes:
            async for _, outcome in outcomes:
                answers.append(outcome if isinstance(outcome, VersionBehind) else _judge(candidate, outcome))
    finally:
        for pending in batch:
            pending.abandoned = True
    return answers


def _find_obstacle(candidate: Variant) -> VariantFallback | None:
    """Why there is no use in asking."""
    if candidate.monitor.out_of_use:
        return "breaker_open"
    return "slow" if candidate.runner.stuck else None


def _judge(candidate: Variant, outcome: Recommendation | Exception) -> Recommendation | VariantFallback:
    """What came of asking. An answer without its engine is none: the champion has one."""
    match outcome:
        case Expired():
            reason: VariantFallback = "slow"
        case Invalid():
            return "unpublished"  # its bundle lacks what the request needs, and the champion's may have it
        case QueueFull() | Overloaded():
            return "full"  # more came at once than it has room for: that says nothing about the model
        case BatcherStopped():
            reason = "stopped"
        case Exception():
            _log.error("The candidate failed", exc_info=outcome)
            reason = "failed"
        case _:
            return "failed" if outcome["degraded"] == "engine_unavailable" else outcome
    candidate.monitor.missed()
    return reason

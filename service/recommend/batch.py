"""Asks for the answers to all requests of a batch: by one variant, or by several side by side."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import NamedTuple

from service.api.responses import Recommendation
from service.errors import Invalid, VersionBehind
from service.ranking.pending import PendingRequest
from service.recommend.candidate import ask_candidate_many
from service.recommend.variant import Variant
from service.recommend.variants import Choice
from service.telemetry.model_metrics import VariantFallback


class Outcome(NamedTuple):
    """What came of a request."""

    variant: Variant
    """The one that was asked last."""
    answer: Recommendation | Exception
    fallback: VariantFallback | None = None
    """Why the champion was asked in place of the candidate."""


async def ask_all(
    choices: Sequence[Choice], batch: Sequence[PendingRequest], *, find_champion: Callable[[], Variant]
) -> AsyncGenerator[tuple[Choice, PendingRequest, Outcome]]:
    """Yield each request with its choice and what came of it, in order.

    `find_champion` gives the one that answers where a candidate does not: it may have been swapped meanwhile.
    """
    groups: dict[tuple[Variant, bool], list[PendingRequest]] = {}
    for choice, pending in zip(choices, batch, strict=True):
        groups.setdefault((choice.variant, choice.on_trial), []).append(pending)
    if len(groups) == 1 and not choices[0].on_trial:  # as always without a candidate: answers go on as they come
        async with contextlib.aclosing(ask_many(choices[0].variant, batch)) as answers:
            index = 0
            async for pending, answer in answers:
                yield choices[index], pending, Outcome(choices[index].variant, answer)
                index += 1
        return
    tasks = {key: asyncio.create_task(_ask_group(*key, group, find_champion)) for key, group in groups.items()}
    try:
        outcomes = {key: iter(await task) for key, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()
    for choice, pending in zip(choices, batch, strict=True):
        yield choice, pending, next(outcomes[choice.variant, choice.on_trial])


async def _ask_group(
    variant: Variant, on_trial: bool, group: Sequence[PendingRequest], find_champion: Callable[[], Variant]
) -> list[Outcome]:
    """What came of the requests of one variant, in order. Where one on trial gives no answer, the champion is asked."""
    if not on_trial:
        async with contextlib.aclosing(ask_many(variant, group)) as answers:
            return [Outcome(variant, answer) async for _, answer in answers]
    tried = await ask_candidate_many(variant, group)
    left = [pending for pending, answer in zip(group, tried, strict=True) if isinstance(answer, str)]
    stand_ins = iter(await _ask_group(find_champion(), False, left, find_champion) if left else ())
    return [
        next(stand_ins)._replace(fallback=answer) if isinstance(answer, str) else Outcome(variant, answer)
        for answer in tried
    ]


async def ask_many(
    variant: Variant, batch: Sequence[PendingRequest]
) -> AsyncGenerator[tuple[PendingRequest, Recommendation | Exception]]:
    """Yield each request with its answer or exception, in order."""
    if not variant.runner.stuck:
        questions = [(pending, pending.expires_s) for pending in batch]
        async with contextlib.aclosing(variant.batcher.submit_many(questions)) as outcomes:
            async for pending, outcome in outcomes:
                yield pending, outcome
        return
    for start in range(0, len(batch), variant.max_batch):
        portion = batch[start : start + variant.max_batch]
        await variant.pipeline.read_histories(portion)
        for pending in portion:
            try:
                yield pending, await variant.pipeline.answer_degraded(pending, "engine_unavailable")
            except (VersionBehind, Invalid) as refusal:
                yield pending, refusal

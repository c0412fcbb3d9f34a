"""What the workers tell the judge of a candidate, through the store."""

import asyncio
from collections.abc import Sequence
from typing import Final

from redis.asyncio import Redis

from model.contract.deployment.document import Deployment
from service.store.variant_counts import RUN_BOUNDS_S, VariantCounts, read_variant_counts
from service.store.worker_states import read_worker_states
from service.trial.guardrails import Observations, VariantObservations

ANSWER_S: Final = 5.0
"""Time limit of all questions."""
GENERATIONS: Final = 32
"""Maximum generations of a trial that are looked at, the newest."""


async def observe_workers(client: Redis, deployment: Deployment, since: int) -> Observations:
    """What was counted since a generation, and who refuses the candidate. Raises RedisError, OSError, TimeoutError.

    A changed share makes another generation of the same trial: answers and runs of all of them count, the split of
    answers and opened breakers of the last alone.
    """
    first = max(since, deployment.generation - GENERATIONS + 1)
    async with asyncio.timeout(ANSWER_S):
        counts = [
            await read_variant_counts(client, deployment.folder_id, generation)
            for generation in range(min(first, deployment.generation), deployment.generation + 1)
        ]
        states = [state for state in await read_worker_states(client) if state.folder_id == deployment.folder_id]
    candidate, last = deployment.candidate, counts[-1]
    return Observations(
        champion=_observe([each["champion"] for each in counts]),
        candidate=_observe([each["candidate"] for each in counts]),
        assigned=(last["champion"].answers, last["candidate"].answers),
        inference_bounds_s=RUN_BOUNDS_S,
        refused_by=sum(state.refused is not None and state.refused.version == candidate for state in states),
        breakers_opened=last["candidate"].breakers_opened,
    )


def _observe(counts: Sequence[VariantCounts]) -> VariantObservations:
    return VariantObservations(
        answers=sum(each.answers for each in counts),
        failures=sum(each.failures for each in counts),
        degraded=sum(each.degraded for each in counts),
        inference_counts=tuple(map(sum, zip(*(each.runs for each in counts), strict=True))),
    )

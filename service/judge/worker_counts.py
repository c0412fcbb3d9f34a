"""What the workers tell the judge of a candidate, through the store."""

import asyncio
from typing import Final

from redis.asyncio import Redis

from model.contract.deployment.document import Deployment
from service.store.variant_counts import RUN_BOUNDS_S, VariantCounts, read_variant_counts
from service.store.worker_states import read_worker_states
from service.trial.guardrails import Observations, VariantObservations

ANSWER_S: Final = 5.0
"""Time limit of both questions."""


async def observe_workers(client: Redis, deployment: Deployment) -> Observations:
    """What was counted in this generation, and who refused the candidate. Raises RedisError, OSError, TimeoutError."""
    async with asyncio.timeout(ANSWER_S):
        counts = await read_variant_counts(client, deployment.generation)
        states = await read_worker_states(client)
    candidate = deployment.candidate
    return Observations(
        champion=_observe(counts["champion"]),
        candidate=_observe(counts["candidate"]),
        inference_bounds_s=RUN_BOUNDS_S,
        refused_by=sum(state.refused is not None and state.refused.version == candidate for state in states),
        breakers_opened=counts["candidate"].breakers_opened,
    )


def _observe(counts: VariantCounts) -> VariantObservations:
    return VariantObservations(
        answers=counts.answers, failures=counts.failures, degraded=counts.degraded, inference_counts=counts.runs
    )

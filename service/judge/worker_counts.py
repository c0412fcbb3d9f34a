"""What the workers tell the judge of candidate and champion, through the store."""

import asyncio
from collections.abc import Sequence
from typing import Final

from redis.asyncio import Redis

from model.contract.deployment.document import Deployment
from service.deployment.refusals import FAILING
from service.store.variant_counts import RUN_BOUNDS_S, VariantCounts, read_variant_counts
from service.store.worker_states import Refused, read_worker_states
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
    began = min(since, deployment.generation)
    first = max(began, deployment.generation - GENERATIONS + 1)
    async with asyncio.timeout(ANSWER_S):
        counts = [
            await read_variant_counts(client, deployment.folder_id, generation)
            for generation in range(first, deployment.generation + 1)
        ]
        refused = await _list_refused(client, deployment, since=began)
    candidate, last = deployment.candidate, counts[-1]
    return Observations(
        champion=_observe([each["champion"] for each in counts]),
        candidate=_observe([each["candidate"] for each in counts]),
        assigned=(last["champion"].answers, last["candidate"].answers),
        inference_bounds_s=RUN_BOUNDS_S,
        refused_by=sum(one.version == candidate for one in refused),
        breakers_opened=last["candidate"].breakers_opened,
    )


async def count_failing(client: Redis, deployment: Deployment) -> int:
    """How many workers went back from the champion, since its engine fails. Raises RedisError, OSError, TimeoutError.

    Those that did so when it was champion before do not count: somebody has made it champion again.
    """
    since = deployment.history[-1].generation if deployment.history else deployment.generation
    async with asyncio.timeout(ANSWER_S):
        refused = await _list_refused(client, deployment, since=since)
    return sum((one.version, one.code) == (deployment.champion, FAILING) for one in refused)


async def _list_refused(client: Redis, deployment: Deployment, *, since: int) -> list[Refused]:
    """What workers of this bundle folder refuse, each since a generation or a later one."""
    states = await read_worker_states(client)
    refused = [state.refused for state in states if state.folder_id == deployment.folder_id]
    return [one for one in refused if one is not None and one.generation >= since]


def _observe(counts: Sequence[VariantCounts]) -> VariantObservations:
    return VariantObservations(
        answers=sum(each.answers for each in counts),
        failures=sum(each.failures for each in counts),
        degraded=sum(each.degraded for each in counts),
        inference_counts=tuple(map(sum, zip(*(each.runs for each in counts), strict=True))),
    )

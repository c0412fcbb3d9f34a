"""What workers counted over the generations of one trial."""

import asyncio

from redis.asyncio import Redis

from model.contract.deployment.document import Deployment
from service.judge.worker_counts import GENERATIONS, observe_workers
from service.store.variant_counts import VariantTally, add_variant_counts, name_variant_counts
from service.trial.guardrails import Observations


def observe(store_url: str, generation: int, since: int) -> Observations:
    """What is seen in a generation, after each from 100 to it counted some."""

    async def scenario() -> Observations:
        async with Redis.from_url(store_url) as client:
            await client.delete(*(name_variant_counts(number) for number in range(100, 210)))
            for number in range(100, generation + 1):
                tally = VariantTally()
                tally.add("champion", "answers")
                tally.add("candidate", "answers")
                tally.add("candidate", "failures")
                tally.add_run("candidate", 0.001)
                if number == 100:
                    tally.add("candidate", "breakers_opened")
                await add_variant_counts(client, number, tally.take())
            deployment = Deployment(generation=generation, champion="a", candidate="b", mode="canary", share=0.5)
            return await observe_workers(client, deployment, since)

    return asyncio.run(scenario())


def test_a_changed_share_goes_on_counting(store_url: str) -> None:
    """Answers, failures and runs of all generations of the trial; the split and breakers of the last alone."""
    seen = observe(store_url, 103, 101)
    assert (seen.champion.answers, seen.candidate.answers, seen.candidate.failures) == (3, 3, 3)
    assert sum(seen.candidate.inference_counts or ()) == 3
    assert (seen.assigned, seen.breakers_opened) == ((1, 1), 0)
    assert observe(store_url, 100, 100).breakers_opened == 1


def test_no_more_than_so_many_generations_are_read(store_url: str) -> None:
    """The newest of a trial whose share somebody changes every minute."""
    assert observe(store_url, 100 + GENERATIONS + 5, 100).candidate.answers == GENERATIONS


def test_a_generation_of_the_future_is_not_awaited(store_url: str) -> None:
    """As where a deployment was put back from a copy."""
    assert observe(store_url, 100, 200).candidate.answers == 1

"""What workers counted over the generations of one trial."""

import asyncio
import time
from dataclasses import replace

from redis.asyncio import Redis

from model.contract.deployment.document import Deployment
from service.judge.worker_counts import GENERATIONS, observe_workers
from service.store.variant_counts import VariantTally, add_variant_counts, name_variant_counts
from service.store.worker_states import Refused, WorkerState, write_worker_state
from service.trial.guardrails import Observations

FOLDER = "00aa"


def make_deployment(generation: int, *, folder_id: str = FOLDER) -> Deployment:
    """A candidate in canary."""
    return Deployment(generation=generation, champion="a", candidate="b", mode="canary", share=0.5, folder_id=folder_id)


def observe(store_url: str, generation: int, since: int) -> Observations:
    """What is seen in a generation, after each from 100 to it counted some."""

    async def scenario() -> Observations:
        async with Redis.from_url(store_url) as client:
            await client.delete(*(name_variant_counts(FOLDER, number) for number in range(100, 210)))
            for number in range(100, generation + 1):
                tally = VariantTally()
                tally.add("champion", "answers")
                tally.add("candidate", "answers")
                tally.add("candidate", "failures")
                tally.add_run("candidate", 0.001)
                if number == 100:
                    tally.add("candidate", "breakers_opened")
                await add_variant_counts(client, FOLDER, number, tally.take())
            return await observe_workers(client, make_deployment(generation), since)

    return asyncio.run(scenario())


def test_a_changed_share_goes_on_counting(store_url: str) -> None:
    """Answers, failures and runs of all generations of the trial; the split and breakers of the last alone."""
    seen = observe(store_url, 103, 101)
    assert (seen.champion.answers, seen.candidate.answers, seen.candidate.failures) == (3, 3, 3)
    assert sum(seen.candidate.inference_counts or ()) == 3
    assert (seen.assigned, seen.breakers_opened) == ((1, 1), 0)
    assert observe(store_url, 100, 100).breakers_opened == 1


def test_another_folder_is_not_mixed_up(store_url: str) -> None:
    """What workers of another bundle folder on the same store counted and refused at the same generation is theirs."""

    async def scenario() -> list[Observations]:
        ours, theirs = make_deployment(100), make_deployment(100, folder_id="00bb")
        refused = Refused("b", "corrupt", "2026-11-23T00:00:00.000Z", 100)
        async with Redis.from_url(store_url) as client:
            await add_variant_counts(client, theirs.folder_id, 100, {"candidate:answers": 5})
            state = WorkerState("i:1", 100, "a", None, refused, int(time.time() * 1000), folder_id=theirs.folder_id)
            await write_worker_state(client, state)
            later = replace(theirs, generation=101)
            return [await observe_workers(client, *seen) for seen in ((ours, 100), (theirs, 100), (later, 101))]

    ours, theirs, later = asyncio.run(scenario())
    assert (ours.candidate.answers, ours.refused_by) == (0, 0)
    assert (theirs.candidate.answers, theirs.refused_by) == (5, 1)
    assert later.refused_by == 0  # it was refused in an earlier trial


def test_no_more_than_so_many_generations_are_read(store_url: str) -> None:
    """The newest of a trial whose share somebody changes every minute."""
    assert observe(store_url, 100 + GENERATIONS + 5, 100).candidate.answers == GENERATIONS


def test_a_generation_of_the_future_is_not_awaited(store_url: str) -> None:
    """As where a deployment was put back from a copy."""
    assert observe(store_url, 100, 200).candidate.answers == 1

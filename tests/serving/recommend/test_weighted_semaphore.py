"""Several permits at once, in the order of arrival, and never more than there are."""

import asyncio

import pytest

from service.recommend.weighted_semaphore import WeightedSemaphore


async def settle():
    """Let everything happen that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def acquire(semaphore, *permits):
    """One task for each number of permits."""
    return [asyncio.create_task(semaphore.acquire(count, within_s=60)) for count in permits]


def count_done(tasks):
    """How many tasks of each are done."""
    return [task.done() for task in tasks]


def test_who_asks_for_many_is_not_overtaken():
    """One permit is free and stays so, as long as somebody waits for two."""

    async def scenario():
        semaphore = WeightedSemaphore(3)
        tasks = acquire(semaphore, 2, 2, 1)
        await settle()
        assert count_done(tasks) == [True, False, False]
        semaphore.release(2)
        await settle()
        assert count_done(tasks) == [True, True, True]

    asyncio.run(scenario())


def test_who_gives_up_makes_way():
    """After its time, or cancelled, it holds nothing, and who waited behind it goes on."""

    async def scenario():
        semaphore = WeightedSemaphore(2)
        await semaphore.acquire(1, within_s=60)
        hasty = asyncio.create_task(semaphore.acquire(2, within_s=0.01))
        await settle()
        leaving, last = acquire(semaphore, 2, 1)
        with pytest.raises(TimeoutError):
            await hasty
        await settle()
        assert not last.done()
        leaving.cancel()
        await asyncio.wait_for(last, 5)
        semaphore.release(1)
        semaphore.release(1)
        await semaphore.acquire(2, within_s=0)

    asyncio.run(scenario())


@pytest.mark.parametrize("granted_first", [True, False])
def test_cancelled_in_the_turn_of_the_grant(granted_first):
    """Whichever comes first, no permit is lost and none is made."""

    async def scenario():
        semaphore = WeightedSemaphore(1)
        await semaphore.acquire(1, within_s=60)
        [waiting] = acquire(semaphore, 1)
        await settle()
        steps = [lambda: semaphore.release(1), waiting.cancel]
        for step in steps if granted_first else reversed(steps):
            step()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await semaphore.acquire(1, within_s=0)
        [second] = acquire(semaphore, 1)
        await settle()
        assert not second.done()
        second.cancel()

    asyncio.run(scenario())

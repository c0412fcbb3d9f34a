"""Clients that send again until they are answered, over a line that loses answers, to processes that die."""

import asyncio

import pytest

from benchmarks.reliability.chaos.proxy import Faults
from benchmarks.reliability.chaos.system import run_system
from service.embedded.valkey import find_binary

EVENTS = 5_000


@pytest.mark.timeout(600)
def test_every_event_is_stored_once_and_in_order(folder, library, bundle):
    """5,000 events of concurrent clients, a third of replies lost, store and service killed once: nothing is wrong."""

    async def run():
        async with run_system(folder, binary=find_binary(), library=library, bundle=bundle) as system:
            system.proxy.faults = Faults(lost_replies=0.3)
            await system.wait_for(EVENTS // 3)
            await system.store.kill()
            await system.store.start()
            await system.wait_for(2 * EVENTS // 3)
            await system.service.kill()
            await system.service.start()
            await system.wait_for(EVENTS)
            violations = await system.settle()
            return violations, system.clients, system.proxy.failed

    violations, clients, lost_replies = asyncio.run(run())
    assert violations == []
    assert clients.acknowledged >= EVENTS
    assert {event.outcome for event in clients.sent} == {"ok"}
    assert lost_replies > 0
    assert clients.failed_attempts > 0
    assert max(event.attempts for event in clients.sent) > 1

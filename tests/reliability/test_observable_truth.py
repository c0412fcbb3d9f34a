"""What is counted is what happened: in the metrics, in the receipts that clients got, in the log."""

import asyncio
import re

import httpx
import pytest

from benchmarks.reliability.chaos.clients import EVENTS_PER_REQUEST
from benchmarks.reliability.chaos.proxy import NO_FAULTS, Faults
from benchmarks.reliability.chaos.system import run_system
from service.embedded.valkey import find_binary

COUNT = re.compile(r'^nextitem_events_total\{result="(\w+)",type="view"\} (\S+)$', re.MULTILINE)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("faults", [NO_FAULTS, Faults(lost_replies=0.2, resets=0.1)], ids=["well", "faults"])
def test_counters_receipts_and_log_agree(folder, library, bundle, faults):
    """The log holds what was acknowledged; counters are the sum of the receipts, and without faults the log's, too."""

    async def run():
        async with run_system(folder, binary=find_binary(), library=library, bundle=bundle) as system:
            system.proxy.faults = faults
            await system.wait_for(1_000)
            assert await system.settle() == []
            async with httpx.AsyncClient() as http:
                metrics = (await http.get(f"{system.service.url}/metrics")).text
            return system.clients, metrics, sum(map(len, (await system.read()).log.values()))

    clients, metrics, logged = asyncio.run(run())
    counted = {result: float(count) for result, count in COUNT.findall(metrics)}
    assert logged == clients.acknowledged == len(clients.sent)
    # What a client gave up to wait for may be counted, too.
    unheard = clients.unanswered * EVENTS_PER_REQUEST
    for counter, word in (("accepted", "accepted"), ("duplicate", "duplicates")):
        assert clients.told[word] <= counted[counter] <= clients.told[word] + unheard
    assert counted["rejected"] == 0
    if faults is NO_FAULTS:
        assert counted["accepted"] + unheard >= logged >= counted["accepted"]
    else:
        assert clients.failed_attempts > 0

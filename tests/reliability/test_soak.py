"""The soak's parts: the slope of memory, the mix of requests, and a control that really leaks."""

import asyncio
import mmap
import os
import random
from urllib.parse import urlsplit

import pytest

from benchmarks.harness.cpu_time import Turn, compare, look
from benchmarks.harness.open_loop import Outcome, fire
from benchmarks.harness.processes import ServiceProcess
from benchmarks.reliability.soak.answers import count_failed, count_refused, tabulate
from benchmarks.reliability.soak.memory import Sample, measure_growth, sample
from benchmarks.reliability.soak.rude_clients import EACH, disturb
from benchmarks.reliability.soak.traffic import KINDS, mix


@pytest.mark.parametrize("growth", [-1.0, 0.0, 0.5, 3.0])
def test_growth_is_told_from_noise(growth):
    """Eight minutes of samples that jitter by a MiB: the slope is found to a tenth."""
    draw = random.Random(0)  # noqa: S311 - noise
    samples = [Sample(at_s, 100 + growth * at_s / 60 + draw.uniform(-1, 1), 9) for at_s in range(0, 480, 2)]
    assert measure_growth(samples) == pytest.approx(growth, abs=0.1)


def test_sample_sees_memory_and_files(tmp_path):
    """32 MiB that are written to, and three files that are opened, show."""
    before = sample(os.getpid(), at_s=0)
    block = mmap.mmap(-1, 32 << 20)  # pages of its own: the allocator may keep what was freed, or have it at hand
    for start in range(0, len(block), mmap.PAGESIZE):
        block[start] = 1
    files = [(tmp_path / str(number)).open("w") for number in range(3)]
    after = sample(os.getpid(), at_s=1)
    for file in files:
        file.close()
    assert after.resident_mib - before.resident_mib == pytest.approx(32, abs=16)
    assert after.open_files - before.open_files == 3


def test_refusals_are_no_failures():
    """A 503 is told from other 5xx and from no answer at all; 4xx are what was asked for."""
    outcomes = [Outcome("kind", 0, 0, 0.5, status, "", "") for status in (200, 204, 404, 422, 503, 503, 500, 0)]
    assert (count_refused(outcomes), count_failed(outcomes)) == (2, 2)
    assert tabulate(outcomes, ["kind"]).splitlines()[1].split()[:5] == ["kind", "8", "2", "2", "500"]


def test_waiting_for_a_core_shows():
    """Half of four seconds run, a quarter waited; and a process that computes is seen to run."""
    assert compare(Turn(0, 1, 1), Turn(4, 3, 2)) == "ran 50 % of the time, waited for a core 25 %"
    first = look()
    while look().ran_s - first.ran_s < 0.05:
        sum(range(10_000))


def locate(service):
    """Its host and port."""
    url = urlsplit(service.url)
    return url.hostname, url.port


@pytest.mark.timeout(120)
def test_control_answers_and_leaks(folder, store, bundle):
    """Every kind of request is answered, and after the warm-up some KiB of each stay."""

    async def soak():
        service = ServiceProcess(
            store.url, bundle, folder / "service.log", module="benchmarks.reliability.soak.leaking"
        )
        await service.start()
        host, port = locate(service)
        outcomes = await fire(host, port, mix(rate=200, seconds=3))
        before = sample(service.process_id, at_s=0)
        outcomes += await fire(host, port, mix(rate=200, seconds=5, seed=1))
        after = sample(service.process_id, at_s=5)
        await service.stop()
        return outcomes, after.resident_mib - before.resident_mib

    outcomes, leak = asyncio.run(soak())
    assert {outcome.label for outcome in outcomes if 200 <= outcome.status < 500} == {*KINDS}
    assert leak > 2  # MiB, of a thousand requests


def test_rude_clients_leave_nothing_behind(folder, store, bundle):
    """Pipelines of 6,000 requests, half uploads and silence: all others are answered, and no memory is taken by it."""

    async def soak():
        service = ServiceProcess(store.url, bundle, folder / "service.log")
        await service.start()
        host, port = locate(service)
        await fire(host, port, mix(rate=100, seconds=2))
        before = sample(service.process_id, at_s=0)
        async with asyncio.TaskGroup() as group:
            rude = group.create_task(disturb(host, port, seconds=5, every_s=0.1))
            traffic = group.create_task(fire(host, port, mix(rate=50, seconds=5, seed=1)))
        after = sample(service.process_id, at_s=5)
        await service.stop()
        return rude.result(), traffic.result(), after.resident_mib - before.resident_mib

    rude, outcomes, growth = asyncio.run(soak())
    assert rude >= 10 * len(EACH)
    assert count_failed(outcomes) == 0
    assert growth < 60  # MiB, of which 16 are for large bodies

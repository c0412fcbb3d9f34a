"""The soak's parts: the slope of memory, the mix of requests, and a control that really leaks."""

import asyncio
import os
import random
from urllib.parse import urlsplit

import pytest

from benchmarks.chaos.processes import ServiceProcess
from benchmarks.load import fire
from benchmarks.soak.memory import Sample, measure_growth, sample
from benchmarks.soak.traffic import KINDS, mix


@pytest.mark.parametrize("growth", [-1.0, 0.0, 0.5, 3.0])
def test_growth_is_told_from_noise(growth):
    """Eight minutes of samples that jitter by a MiB: the slope is found to a tenth."""
    draw = random.Random(0)  # noqa: S311 - noise
    samples = [Sample(at_s, 100 + growth * at_s / 60 + draw.uniform(-1, 1), 9) for at_s in range(0, 480, 2)]
    assert measure_growth(samples) == pytest.approx(growth, abs=0.1)


def test_sample_sees_memory_and_files(tmp_path):
    """32 MiB that are written to, and three files that are opened, show."""
    before = sample(os.getpid(), at_s=0)
    block = bytearray(os.urandom(1) * (32 << 20))
    files = [(tmp_path / str(number)).open("w") for number in range(3)]
    after = sample(os.getpid(), at_s=1)
    for file in files:
        file.close()
    assert after.resident_mib - before.resident_mib == pytest.approx(len(block) / (1 << 20), abs=8)
    assert after.open_files - before.open_files == 3


@pytest.mark.timeout(120)
def test_control_answers_and_leaks(folder, store, bundle):
    """Every kind of request is answered, and after the warm-up some KiB of each stay."""

    async def soak():
        service = ServiceProcess(store.url, bundle, folder / "service.log", module="benchmarks.soak.leaking")
        await service.start()
        url = urlsplit(service.url)
        outcomes = await fire(url.hostname, url.port, mix(rate=200, seconds=3))
        before = sample(service.process_id, at_s=0)
        outcomes += await fire(url.hostname, url.port, mix(rate=200, seconds=5, seed=1))
        after = sample(service.process_id, at_s=5)
        await service.stop()
        return outcomes, after.resident_mib - before.resident_mib

    outcomes, leak = asyncio.run(soak())
    assert {outcome.label for outcome in outcomes if 200 <= outcome.status < 500} == {*KINDS}
    assert leak > 2  # MiB, of a thousand requests

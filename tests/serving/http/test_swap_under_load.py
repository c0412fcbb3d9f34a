"""Another champion while the service answers: nobody is failed, and no answer mixes two catalogues.

SWAP_TIMES=20 swaps so many times instead of twice, and kills one of four workers, not of two; `make swaps` measures
latency and memory, too.
"""

import asyncio
import os
import signal
import time
from functools import partial

import httpx
import pytest

from benchmarks.reliability.swaps.damage import DAMAGES
from benchmarks.reliability.swaps.runs import change, corrupt_times, swap_times, under_load
from benchmarks.reliability.swaps.traffic import VERSIONS, make_root

TIMES = int(os.environ.get("SWAP_TIMES", "2"))
WORKERS = 4 if TIMES > 2 else 2
GROWTH_MIB = 32


class Served:
    """A process as the benchmark's runs want it."""

    def __init__(self, process):
        self.url, self.process_id = process.url, process.pid


@pytest.fixture
def serve(start_process, tmp_path):
    """A service over a folder with two versions without a common item."""
    root = make_root(tmp_path / "bundles")

    def start(workers):
        options = ("--workers", str(workers), "--bundle", str(root), "--follow-s", "0.2")
        return start_process(*options, embedded=True), root  # nobody else's users

    return start


def list_noticed(process, run):
    """Answers that are not right, but for events that a slow store refused and the log tells of."""
    store_was_slow = any(entry["logger"].startswith("service.store.") for entry in process.log)
    return [
        outcome
        for outcome in run.bad
        if not (store_was_slow and (outcome.label == "send" or outcome.degraded == "store_unavailable"))
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_notices_a_swap(serve, workers):
    """Every answer is 200, by the model and of one catalogue; at the end one model is in memory."""
    process, root = serve(workers)
    act = partial(swap_times, root=root, service=Served(process), times=TIMES)
    run = asyncio.run(under_load(Served(process), act, asks=40, sends=8))
    process.close()
    assert list_noticed(process, run) == []
    assert len(run.outcomes) >= 20
    assert run.resident_mib[-1] <= run.resident_mib[0] + GROWTH_MIB
    assert run.metrics["nextitem_models_loaded"] == 1
    assert run.metrics['nextitem_model_reloads_total{result="swapped"}'] == workers * TIMES
    assert run.metrics["nextitem_deployment_generation"] == TIMES


def test_workers_converge_though_one_is_killed(serve):
    """All serve the new champion soon, the one among them that had to be started anew."""
    process, root = serve(WORKERS)
    for number in range(max(1, TIMES // 3)):
        version = VERSIONS[(number + 1) % 2]
        os.kill(min(process.workers()), signal.SIGKILL)
        deployment = asyncio.run(change(root, version))
        deadline = time.monotonic() + 120
        while not serve_all(process, deployment.generation, version):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    process.close()


def serve_all(process, generation, version):
    """Whether all workers serve, and what the metrics and twenty answers say is the new version."""
    try:
        lines = httpx.get(f"{process.url}/metrics", timeout=10).text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if line[:1] != "#")
        answers = [httpx.get(f"{process.url}/model", timeout=10).json() for _ in range(20)]
    except httpx.TransportError:
        return False  # the killed one had accepted it
    return (
        float(values["nextitem_deployment_generation"]) == generation
        and float(values["nextitem_workers_missing"]) == 0
        and {(answer["generation"], answer["version"]) for answer in answers} == {(generation, version)}
    )


def test_damaged_champions_change_nothing(serve):
    """Each is refused by name, in /model and in the metric; the old model answers on, and a good one is taken after."""
    process, root = serve(1)
    act = partial(corrupt_times, root=root, times=len(DAMAGES), good_every=len(DAMAGES), damages=DAMAGES)
    run = asyncio.run(under_load(Served(process), act, asks=20, sends=0))
    process.close()
    assert list_noticed(process, run) == []
    assert len(run.refused) == len(DAMAGES)
    assert {"corrupt", "missing", "golden", "format"} <= set(run.refused)
    assert run.metrics['nextitem_model_reloads_total{result="swapped"}'] == 1
    assert run.metrics["nextitem_model_refused"] == 0
    refusals = [entry for entry in process.log if "cannot be used" in entry["message"]]
    assert len({entry["message"] for entry in refusals}) == len(DAMAGES)
    assert all(entry["message"].endswith("answers on") and entry["code"] for entry in refusals)

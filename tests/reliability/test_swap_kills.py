"""Worker, probe and writer are killed at named steps of a change: the old deployment answers, or the new one.

KILL_TIMES=5 kills five times at each of the steps instead of once at some.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from benchmarks.harness import killing_steps
from benchmarks.harness.processes import ServiceProcess
from benchmarks.reliability.swaps.runs import await_that, change, list_workers, read_metrics, under_load
from benchmarks.reliability.swaps.traffic import VERSIONS, make_root
from model.contract.bundle import NETWORK
from model.contract.deployment.document import read_deployment
from model.contract.deployment.journal import verify_journal
from service.store.worker_states import read_worker_states

SOME = ("worker-waits-for-probe", "worker-exchanges", "probe-loads", "writer-noted")
TIMES = int(os.environ.get("KILL_TIMES", "0"))
STEPS = list(killing_steps.STEPS) * TIMES or list(SOME)
WORKERS = 2
MOST_CUT_OFF = 20
"""Connections that a killed worker takes with it: what it had accepted, in a second of our questions."""


@pytest.fixture
def hooks(folder, monkeypatch):
    """A folder in which a file kills the first process that reaches the step of its name."""
    path = folder / "hooks"
    path.mkdir()
    shutil.copy(killing_steps.__file__, path / "sitecustomize.py")
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(path), before))))
    return path


def list_probes(hooks):
    """The probes that run among the processes that have the hooks."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                b"probe_process" in (process / "cmdline").read_bytes()
                and str(hooks).encode() in (process / "environ").read_bytes()
            ):
                found.append(process.name)
        except OSError:
            continue
    return found


def run_models(root, *words):
    """`nextitem-serve models`; its exit status."""
    command = [sys.executable, "-m", "service.cli", "models", *words, "--bundle", str(root)]
    return subprocess.run(command, check=False, capture_output=True, timeout=120).returncode


async def change_with_kill(root, hooks, step, version):
    """Make a version the champion, with somebody killed at a step. The deployment that stands then."""
    before = read_deployment(root)
    (hooks / step).touch()
    if not step.startswith("writer"):
        return await change(root, version)
    assert await asyncio.to_thread(run_models, root, "use", version, "--force") == -signal.SIGKILL
    stands = read_deployment(root)
    if step == "writer-changed":
        assert (stands.generation, stands.champion) == (before.generation + 1, version)
        return stands
    assert stands == before
    assert verify_journal(root) is None
    return await change(root, version)


async def has_settled(http, store, service, hooks, deployment):
    """Whether all workers serve a deployment, and nobody else is there, nor said to be in the store."""
    try:
        values = await read_metrics(http)
        models = [(await http.get("/model")).json() for _ in range(4)]
    except httpx.TransportError:
        return False  # the killed one had accepted it
    workers = list_workers(service.process_id)
    return (
        values["nextitem_deployment_generation"] == deployment.generation
        and values["nextitem_workers_missing"] == 0
        and {(model["generation"], model["version"]) for model in models}
        == {(deployment.generation, deployment.champion)}
        and all(model["refused"] is None for model in models)
        and len(workers) == WORKERS
        and {state.worker.rpartition(":")[2] for state in await read_worker_states(store)} == set(map(str, workers))
        and not list_probes(hooks)
    )


async def kill_at_steps(http, _run, *, root, hooks, service, url):
    """Change the champion as often as there are steps, with a kill at each."""
    async with Redis.from_url(url) as store:
        for number, step in enumerate(STEPS):
            version = VERSIONS[(number + 1) % 2]
            (root / version / NETWORK).touch()  # so that it is tried again
            deployment = await change_with_kill(root, hooks, step, version)
            try:
                await await_that(partial(has_settled, http, store, service, hooks, deployment))
            except TimeoutError:
                pytest.fail(f"after {step}: {await read_metrics(http)}")
            assert not (hooks / step).exists(), step
            assert verify_journal(root) is None


@pytest.mark.timeout(1800)
def test_the_old_deployment_answers_or_the_new_one(folder, store, hooks):
    """Whoever dies: each answer is whole and of one catalogue, the journal is right, and nothing is left behind."""
    root = make_root(folder / "bundles")
    log = folder / "service.log"
    options = ("--workers", str(WORKERS), "--drain-delay-s", "0", "--follow-s", "0.2")
    service = ServiceProcess(store.url, root, log, *options)

    async def scenario():
        await service.start()
        try:
            act = partial(kill_at_steps, root=root, hooks=hooks, service=service, url=store.url)
            return await under_load(service, act, asks=20, sends=0)
        finally:
            await service.stop()

    run = asyncio.run(scenario())
    kills = sum(step.startswith("worker") for step in STEPS)
    cut_off = [outcome for outcome in run.bad if outcome.status == 0]
    assert [outcome for outcome in run.bad if outcome.status and outcome.degraded != "store_unavailable"] == []
    assert len(cut_off) <= MOST_CUT_OFF * kills
    assert len(run.outcomes) > 20
    assert list(root.glob(".*.partial")) == []
    assert {path.name for path in root.iterdir() if path.is_dir()} == set(VERSIONS)
    assert run_models(root, "journal", "--verify") == 0

"""Several workers: whatever happens to one, or to what it needs to start, those that serve go on."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import httpx
import pytest

from service.auth.key_file import create_key


@pytest.fixture
def bundles(bundle_path, tmp_path):
    """A folder of bundles of its own, whose `current` names one."""
    return Path(shutil.copytree(bundle_path, tmp_path / "bundles"))


def ready(process):
    """What the readiness route says."""
    response = httpx.get(f"{process.url}/health/ready", timeout=10)
    return response.status_code, response.json()["reasons"]


def count(process, name):
    """The value of a metric without labels."""
    lines = httpx.get(f"{process.url}/metrics", timeout=10).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def await_that(condition, *, seconds=120):
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def publish(bundles, version):
    """Make a copy of the current version the current one, under another name."""
    old = (bundles / "current").read_text().strip()
    shutil.copytree(bundles / old, bundles / version)
    manifest = bundles / version / "manifest.json"
    manifest.write_text(manifest.read_text().replace(old, version))
    (bundles / "current").write_text(version)
    return old


def test_a_worker_is_replaced_though_its_bundle_was_pruned(start_process, bundles):
    """The supervisor keeps the files open: a version that is gone from the folder still starts workers."""
    process = start_process("--workers", "2", "--bundle", str(bundles))
    shutil.rmtree(bundles / (bundles / "current").read_text().strip())
    before = process.workers()
    os.kill(min(before), signal.SIGKILL)
    await_that(lambda: len(process.workers() - before) == 1 and ready(process) == (200, []))
    assert httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}).json()["source"] == "model"
    assert (count(process, "nextitem_workers_missing"), count(process, "nextitem_worker_deaths_total")) == (0, 1)


def test_a_worker_that_cannot_start_ends_nobody(start_process, bundles):
    """Its network's file is damaged: the other goes on and says so, until the file is mended."""
    process = start_process("--workers", "2", "--bundle", str(bundles))
    network = bundles / (bundles / "current").read_text().strip() / "network.onnx"
    whole = network.read_bytes()
    network.write_bytes(whole[:-1])
    os.kill(min(process.workers()), signal.SIGKILL)
    await_that(lambda: count(process, "nextitem_worker_deaths_total") >= 3)  # the one, and two that could not start
    assert ready(process) == (200, ["worker_missing"])
    assert (count(process, "nextitem_workers"), count(process, "nextitem_workers_missing")) == (2, 1)
    assert httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}).json()["source"] == "model"
    network.write_bytes(whole)
    await_that(lambda: ready(process) == (200, []))
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    errors = [entry["message"] for entry in process.log if entry["level"] == "error"]
    assert errors.count("Worker died") == 1
    assert errors.count("Worker could not start") >= 2
    assert any(message.startswith("Worker cannot start: the bundle cannot be used") for message in errors)


def test_the_service_ends_when_none_is_left_and_none_can_start(start_process, bundles, wait_until_gone):
    """Status 1, so that whoever watches over the service knows, and no process is left."""
    process = start_process("--workers", "2", "--bundle", str(bundles))
    (bundles / (bundles / "current").read_text().strip() / "network.onnx").write_bytes(b"")
    family = process.family()
    for worker in process.workers():
        os.kill(worker, signal.SIGKILL)
    assert process.wait() == 1
    assert wait_until_gone(family) == set()
    assert [entry["message"] for entry in process.log if entry["level"] == "critical"] == [
        "No worker is left and none can start: stopping the service"
    ]


def test_a_worker_starts_with_a_broken_file_of_keys(start_process, tmp_path):
    """It lets nobody in, as those that run, and everybody as soon as the file is mended."""
    file = tmp_path / "keys.json"
    headers = {"authorization": f"Bearer {create_key(file, ['recommend'])}"}
    process = start_process("--workers", "2", "--keys-file", str(file))
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    before = process.workers()
    os.kill(min(before), signal.SIGKILL)
    await_that(lambda: len(process.workers() - before) == 1 and ready(process) == (200, []))

    def ask():
        """The answers over 20 connections, which reach both workers."""
        return {httpx.get(f"{process.url}/model", headers=headers).status_code for _ in range(20)}

    await_that(lambda: ask() == {401})
    file.write_bytes(whole)
    await_that(lambda: ask() == {200})
    process.close()
    assert "could not start" not in str(process.log)


@pytest.mark.parametrize("number", [signal.SIGRTMIN, signal.SIGSTOP])
@pytest.mark.usefixtures("hooked")
def test_a_worker_that_hangs_is_replaced(start_process, number):
    """Whether its event loop hangs, of which it leaves the stacks, or the whole process."""
    process = start_process("--workers", "2")
    before = process.workers()
    hung = min(before)
    os.kill(hung, number)
    began_s = time.monotonic()
    await_that(lambda: hung not in process.workers())
    assert time.monotonic() - began_s > 5
    await_that(lambda: len(process.workers()) == 2)
    process.close()
    stacks = [entry["threads"]["MainThread"] for entry in process.log if entry["level"] == "critical"]
    assert len(stacks) == (number == signal.SIGRTMIN)
    assert all("sitecustomize" in stack[-1] for stack in stacks)


def test_told_to_stop_in_a_rolling_restart_it_stops(start_process, hooked, wait_until_gone):
    """Nobody waits for a model that loads."""
    process = start_process("--workers", "2")
    before = process.family()
    (hooked / "load_s").write_text("600")
    process.signal(signal.SIGHUP)
    await_that(lambda: len(process.workers()) == 3)
    family = process.family() | before
    process.signal(signal.SIGTERM)
    began_s = time.monotonic()
    assert process.wait() == 0
    assert time.monotonic() - began_s < 100
    assert wait_until_gone(family) == set()


def test_another_model_is_taken_without_an_outage(start_process, bundles):
    """SIGHUP replaces the workers, who serve what `current` names by then; the version before may be removed."""
    process = start_process("--workers", "2", "--bundle", str(bundles))
    before = process.workers()
    old = publish(bundles, "another")
    process.signal(signal.SIGHUP)
    await_that(lambda: len(process.workers()) == 2 and not process.workers() & before)
    shutil.rmtree(bundles / old)
    answers = [httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}).json() for _ in range(10)]
    assert {answer["model"]["version"] for answer in answers} == {"another"}
    assert count(process, "nextitem_worker_deaths_total") == 0


@pytest.mark.parametrize("fault", ["none", "damaged"])
def test_a_model_that_does_not_load_replaces_nobody(start_process, bundles, fault):
    """SIGHUP finds no bundle, or one that is not whole: the workers stay as they are, and the log says so."""
    process = start_process("--workers", "2", "--bundle", str(bundles))
    before = process.workers()
    old = publish(bundles, "another")
    if fault == "none":
        shutil.rmtree(bundles / "another")
    else:
        (bundles / "another" / "network.onnx").write_bytes(b"")
    process.signal(signal.SIGHUP)
    await_that(lambda: count(process, "nextitem_model_refused") == 1)
    assert process.workers() == before
    answer = httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}).json()
    assert (answer["model"]["version"], ready(process)) == (old, (200, []))
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    said = [entry["message"] for entry in process.log if entry["level"] == "error"]
    assert "Workers were not replaced" in said
    assert f"Version another cannot be used: {old} answers on" in said


def test_the_only_worker_says_that_it_cannot_be_replaced(start_process, bundles):
    """SIGHUP, as logrotate sends it, neither ends the service of a single bundle nor goes unheard."""
    bundle = bundles / (bundles / "current").read_text().strip()
    process = start_process("--bundle", str(bundle))
    process.signal(signal.SIGHUP)
    for _ in range(3):
        assert httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}).status_code == 200
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    [warning] = [entry["message"] for entry in process.log if entry["level"] == "warning"]
    assert warning.startswith("SIGHUP ignored: the bundle is a single one")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_closed_terminal_ends_the_service_in_order(bundle_path, tmp_path, workers):
    """Its SIGHUP is no wish for other workers: nobody is there any more who could end it."""
    terminal, end = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "--bundle", bundle_path, "--port", "0", "--workers", str(workers)],
        cwd=tmp_path,
        stdin=end,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", str(Path.cwd()))},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no thread of ours is running
    )
    os.close(end)
    assert process.stderr
    lines = iter(process.stderr)
    assert any("Serving" in line for line in lines)
    os.close(terminal)
    rest = process.communicate(timeout=120)[1]
    assert (process.returncode, '"error"' in rest) == (0, False)

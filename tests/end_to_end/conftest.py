"""A bundle made by the commands from a log of our own, as large as MovieLens-100K in items and tiny in events."""

import csv
import re
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest

ITEMS = 1682
POPULAR = 50
START_LIMIT_S = 120


def run(*command):
    """Run one of our commands as a module; its output is shown when it fails."""
    finished = subprocess.run([sys.executable, "-m", *map(str, command)], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="session")
def log(tmp_path_factory):
    """Two hundred users who each start with item 50 and see every item between them; half of them end with 181."""
    folder = tmp_path_factory.mktemp("log")
    draw = np.random.default_rng(5)
    shuffled = draw.permutation(np.arange(1, ITEMS + 1))
    with (folder / "interactions.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "item", "timestamp", "value"])
        for user, items in enumerate(np.array_split(shuffled, 200), start=1):
            last = [181] if user % 2 else []
            for step, item in enumerate([POPULAR, *items[items != POPULAR], *last]):
                rows.writerow([user, item, 880_000_000 + step, 4])
    with (folder / "items.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["item", "title", "year", "genres"])
        rows.writerow([POPULAR, "Star Wars", 1977, "Action|Adventure|Romance|Sci-Fi|War"])
    return folder


@pytest.fixture(scope="session")
def bundles(log, tmp_path_factory):
    """The folder to which that log's model was published."""
    folder = tmp_path_factory.mktemp("published")
    data, run_folder, out = log / "interactions.csv", folder / "run", folder / "bundles"
    run("training.cli", "fit", "bert4rec-small", "--data", data, "--out", run_folder, "--set", "train.epochs=1")
    run("training.cli", "publish", run_folder, "--out", out, "--items", log / "items.csv")
    return out


@pytest.fixture
def start_service(tmp_path):
    """A function that serves bundles on a free port and always the same data folder, and gives (process, URL)."""
    started = []

    def start(bundles):
        log = (tmp_path / "serve.log").open("w+")
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "--bundle", bundles, "--data-dir", tmp_path / "data", "--port", "0"],
            stderr=log,
            stdout=log,
        )
        started.append((process, log))
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and process.poll() is None:
            log.seek(0)
            found = re.search(r"http://127\.0\.0\.1:\d+", log.read())
            if found:
                try:
                    if httpx.get(f"{found[0]}/health/ready").status_code == 200:
                        return process, found[0]
                except httpx.TransportError:
                    pass
            time.sleep(0.05)
        log.seek(0)
        raise AssertionError(log.read())

    yield start
    for process, log in started:
        if process.poll() is None:
            process.kill()
            process.wait()
        log.close()


@pytest.fixture
def redraw_weights():
    """Draws the weights of a run in a folder anew, so large that answers differ by what the network is told."""
    import torch  # noqa: PLC0415 - few of these tests need it in their own process

    from training.runs.checkpoint import save_weights  # noqa: PLC0415 - imports torch
    from training.runs.networks import load_network  # noqa: PLC0415
    from training.runs.run import Run  # noqa: PLC0415

    def redraw(path):
        run = Run.open(path)
        network = load_network(run)
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(std=0.7)
        save_weights(run.kept, network)
        return run

    return redraw

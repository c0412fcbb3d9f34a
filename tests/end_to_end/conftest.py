"""A bundle made by the commands from a log of our own, as large as MovieLens-100K in items and tiny in events."""

import csv
import subprocess
import sys

import numpy as np
import pytest

ITEMS = 1682
POPULAR = 50


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
    run("training.cli", "fit", "demo", "--data", data, "--out", run_folder, "--set", "train.epochs=1")
    run("training.cli", "publish", run_folder, "--out", out, "--items", log / "items.csv")
    return out

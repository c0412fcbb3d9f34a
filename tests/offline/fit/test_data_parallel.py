"""Two processes train as one: the same weights on both, and those of one process with the joint batches."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from training.fit.distributed import ALONE
from training.runs.run import Run

RANKS = """
import json, os, sys
from pathlib import Path
import safetensors.torch
import torch
import torch._dynamo  # as the optimizer does, in each process then
from training.fit import fit
from training.recipe import make_recipe
torch.set_num_threads(1)
def run(log, out, recipe, resume, stop_after):
    trained, networks, updates = fit.train, [], []
    def train(network, optimizer, **parts):
        networks.append(network)
        updates.append(parts["progress"])
        trained(network, optimizer, **parts)
    fit.train = train
    stop = lambda: bool(updates) and updates[-1].updates >= stop_after
    results = fit.fit(make_recipe(recipe), Path(log), Path(out), resume=resume, items=None, stop=stop)
    state = {name: value.contiguous() for name, value in networks[-1].state_dict().items()}
    file = f"{out}-rank{os.environ['RANK']}"
    safetensors.torch.save_file(state, file)
    Path(file + ".json").write_text(json.dumps(results))
for line in sys.stdin:
    environments, given = json.loads(line)
    ranks = []
    for environment in environments:
        ranks.append(os.fork())
        if not ranks[-1]:
            os.environ.update(environment)
            run(*given)
            sys.stderr.flush()
            os._exit(0)
    print(json.dumps([os.waitpid(rank, 0)[1] for rank in ranks]), flush=True)
"""
"""Trains in processes forked for each line of stdin, and writes their statuses: importing torch takes seconds."""


@pytest.fixture(scope="module")
def run_ranks(tmp_path_factory):
    """A function that trains in a process for each environment; statuses and what they wrote to stderr."""
    said = tmp_path_factory.mktemp("ranks") / "stderr"
    with said.open("w") as stderr:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}  # a rank that aborts says where
        process = subprocess.Popen(
            [sys.executable, "-c", RANKS],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def run(environments, *given):
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps([environments, given]) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline() or "null"), said.read_text()

    with process:
        yield run


@pytest.fixture
def fit_together(run_ranks, cycle_csv, tmp_path):
    """A function that trains by a recipe in so many processes and gives their weights and results."""

    def fit(name, recipe, *, world, resume=False, stop_after=10**9):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environments = [
            {"WORLD_SIZE": str(world), "RANK": str(rank), "LOCAL_RANK": str(rank)}
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
            for rank in range(world)
        ]
        out = tmp_path / name
        statuses, said = run_ranks(environments, str(cycle_csv), str(out), recipe.to_dict(), resume, stop_after)
        assert statuses == [0] * world, said
        weights = [safetensors.torch.load_file(f"{out}-rank{rank}") for rank in range(world)]
        return weights, [json.loads(Path(f"{out}-rank{rank}.json").read_text()) for rank in range(world)]

    return fit


@pytest.mark.parametrize(
    "keys", [{}, {"network": "sasrec", "loss": "bce", "negatives": 2}, {"loss": "gbce", "negatives": 5}], ids=str
)
def test_two_ranks_train_as_one(fit_together, small_recipe, keys):
    """Without dropout the weights are equal bit for bit on both ranks, and close to those of one process."""
    recipe = small_recipe(dropout=0.0, epochs=2, batch_size=7, **keys)  # 24 windows: the last batch is uneven
    (one,), (alone,) = fit_together("alone", recipe, world=1)
    (first, second), results = fit_together("joint", recipe, world=2)
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name, weight in first.items():
        torch.testing.assert_close(weight, one[name], atol=2e-4, rtol=1e-3, msg=name)
    assert results[0] == results[1]
    assert results[0]["epochs"] == alone["epochs"] == 2


def test_ranks_stop_together_and_resume(fit_together, small_recipe, tmp_path):
    """With dropout the ranks stay equal, too; what the first one is asked ends both, --resume goes on bit by bit."""
    recipe = small_recipe(dropout=0.3, epochs=3, batch_size=8)
    (first, second), results = fit_together("run", recipe, world=2, stop_after=4)
    assert results == [None, None]
    assert all(torch.equal(first[name], second[name]) for name in first)
    (resumed, other), results = fit_together("run", recipe, world=2, resume=True)
    assert results[0]["epochs"] == 3
    (straight, _), _ = fit_together("straight", recipe, world=2)
    for name, weight in resumed.items():
        assert torch.equal(weight, other[name])
        assert torch.equal(weight, straight[name])
    assert [line["epoch"] for line in Run(tmp_path / "run").read_epochs()] == [1, 2, 3]


def test_one_process_is_no_group():
    """Alone nothing is asked of torch.distributed."""
    assert ALONE.first
    assert ALONE.agree(stop=True, seconds=2.5) == (True, 2.5)
    assert ALONE.broadcast(lambda: "said") == "said"

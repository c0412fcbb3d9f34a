"""Threads that wait sleep soon wherever we train: PyTorch's OpenMP runtime says itself how it was told to wait."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libgomp, which is asked here, is Linux's")


def ask_openmp(*arguments, **settings):
    """How often a waiting thread spins before it sleeps, by libgomp, in a Python process of such arguments."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    environment = known | {"OMP_DISPLAY_ENV": "verbose"} | settings
    ended = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    [count] = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", ended.stderr)
    return int(count)


def test_the_command_sleeps_and_a_users_setting_wins(cycle_csv):
    """`nextitem-train` sets the policy before PyTorch loads the runtime, and leaves one that is set as it is."""
    command = ("-m", "training.cli", "evaluate", "pop", "--data", cycle_csv)
    assert ask_openmp(*command) == 20_000
    assert ask_openmp(*command, OMP_WAIT_POLICY="active") > 1_000_000
    assert ask_openmp(*command, GOMP_SPINCOUNT="0") == 0


def test_a_benchmark_that_trains_in_its_own_process_sleeps():
    """Whatever it imports first: this one imports torch before any of the rooms, and `benchmarks` before all."""
    assert ask_openmp("-c", "import benchmarks.training.systems.nextitem") == 20_000

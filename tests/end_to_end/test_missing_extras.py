"""A command without the packages that it needs says which extra to install, and shows no traceback."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
SWEEP = ["sweep", "bert4rec-small", "--try", "model.width=32,64"]
FIT = ["fit", "bert4rec-small", "--data", "log.csv", "--out", "run"]
RUN = """
import importlib, sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None  # as if it were not installed
module, _, function = sys.argv.pop(1).partition(":")
sys.exit(getattr(importlib.import_module(module), function)())
"""


@pytest.mark.parametrize(
    ("command", "missing", "extra", "arguments"),
    [
        ("nextitem-train", "torch,polars", "training", ["evaluate", "pop", "--data", "log.csv"]),
        ("nextitem-train", "polars", "training", ["describe", "--data", "log.csv"]),
        ("nextitem-train", "optuna", "sweep", [*SWEEP, "--data", "log.csv", "--out", "swept"]),
        ("nextitem-train", "tensorboard", "tracking", [*FIT, "--tensorboard"]),
        ("nextitem-train", "mlflow", "tracking", [*FIT, "--mlflow", "sqlite:///mlflow.db"]),
        ("nextitem-serve", "pydantic", "service", ["--bundle", "bundles"]),
        ("nextitem-serve", "redis", "service", ["keys", "list"]),
        ("nextitem-serve", "numpy", "service", ["--bundle", "bundles"]),
        ("nextitem-train", "numpy", "training", ["describe", "--data", "log.csv"]),
    ],
)
def test_a_missing_extra_is_one_sentence(tmp_path, command, missing, extra, arguments):
    """The package that is missing and the words to type, on stderr, with status 1."""
    (tmp_path / "log.csv").write_text("user,item,timestamp\nu,i,1\n")
    started = [sys.executable, "-c", RUN, missing, COMMANDS[command], *arguments]
    ended = subprocess.run(started, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    told = rf"{command}: it needs ({missing.replace(',', '|')}), which is not installed here: pip install 'nextitem"
    assert ended.stderr.count("\n") == 1
    assert re.fullmatch(told + rf"\[{extra}\]'\n", ended.stderr)


def test_a_module_of_our_own_that_is_missing_is_our_fault():
    """It is no matter of what is installed: the traceback stays."""
    started = [sys.executable, "-c", RUN, "service.cli", COMMANDS["nextitem-serve"]]
    ended = subprocess.run(started, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Traceback" in ended.stderr
    assert "pip install" not in ended.stderr

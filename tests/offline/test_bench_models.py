"""`make bench-models`: what it would measure is possible, and it says which cells are older than today's recipes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.accuracy import models
from benchmarks.accuracy.models import GROUPS, Group
from training.benchmark.cells import Cell, read_cell
from training.recipe_models import BaselineRecipe, TransformerRecipe

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "models"


GROUP = Group(name="ml-1m", log="none.txt", models=("pop", "bert4rec-small"), protocols=("P2",), seeds=(1,))


@pytest.fixture
def check(monkeypatch, capsys, tmp_path):
    """A function: `--check` of one group over cells in `out`; its exit status and what it printed, line by line."""
    monkeypatch.setattr(models, "GROUPS", (GROUP,))
    monkeypatch.setattr(sys, "argv", ["models", "--check", "--out", str(tmp_path / "out")])

    def run():
        status = models.main()
        shown = capsys.readouterr()
        return status, (shown.out + shown.err).splitlines()

    return run


@pytest.fixture
def fresh(tmp_path):
    """The folder of that group's cells: committed documents with today's recipes."""
    for cell in GROUP.make_plan(tmp_path, tmp_path / "out", tmp_path).list_cells():
        document = json.loads((RESULTS / cell.path.relative_to(tmp_path / "out")).read_text())
        cell.path.parent.mkdir(parents=True, exist_ok=True)
        cell.path.write_text(json.dumps(document | {"recipe": cell.recipe.to_dict()}))
    return tmp_path / "out" / "ml-1m" / "P2"


def test_every_plan_makes_sense(tmp_path):
    """Recipes, settings and protocols of each group go together, and no two groups measure the same cell."""
    plans = [group.make_plan(tmp_path, tmp_path / "out", tmp_path / "runs") for group in GROUPS]
    cells = [cell for plan in plans for cell in plan.list_cells()]
    assert len(cells) == len({cell.path for cell in cells})
    assert any(isinstance(cell.recipe.model, TransformerRecipe) and cell.seed == 3 for cell in cells)
    assert any(isinstance(cell.recipe.model, BaselineRecipe) for cell in cells)


@pytest.mark.usefixtures("fresh")
def test_cells_of_todays_recipes_pass(check):
    """All are there and nothing is listed."""
    assert check() == (0, ["2 of 2 cells are of today's recipes and settings"])


def test_a_cell_of_another_recipe_is_listed(check, fresh):
    """One key differs: status 1, and the cell by its path."""
    path = fresh / "bert4rec-small-s1.json"
    document = json.loads(path.read_text())
    document["recipe"]["train"]["clip_norm"] += 1
    path.write_text(json.dumps(document))
    assert check() == (1, [f"{path}: of another recipe", "1 of 2 cells are of today's recipes and settings"])


def test_a_cell_that_is_gone_is_listed(check, fresh):
    """Nothing was measured, or it was deleted."""
    (fresh / "pop-s1.json").unlink()
    assert check() == (1, [f"{fresh}/pop-s1.json: missing", "1 of 2 cells are of today's recipes and settings"])


def test_a_damaged_cell_is_one_sentence(check, fresh):
    """Status 2, and the path in it."""
    (fresh / "pop-s1.json").write_text("{")
    status, [line] = check()
    assert status == 2
    assert f"{fresh}/pop-s1.json is not a valid benchmark cell" in line


def test_runs_are_found_under_the_first_names_of_keys(tmp_path):
    """The folder of a run hangs on its recipe's choices by the names that keys had when the runs were made."""
    results = RESULTS / "beauty" / "P1"
    found = [
        Cell.of(read_cell(results / f"{name}-s1.json"), out=tmp_path, runs=tmp_path).run.name
        for name in ("caser", "session-knn")
    ]
    assert found == ["caser-s1-ebff51c1", "session-knn-s1-2671d78d"]


def test_a_folder_without_the_logs_is_named(tmp_path):
    """One line says what is missing, and nothing is made."""
    command = [sys.executable, "-m", "benchmarks.accuracy.models", str(tmp_path), "--out", str(tmp_path / "out")]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "ml-1m.txt.gz" in found.stderr
    assert not (tmp_path / "out").exists()

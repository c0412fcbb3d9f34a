"""`make bench-models`: what it would measure is possible, and what it has measured is there."""

import subprocess
import sys
from pathlib import Path

from benchmarks.models import GROUPS
from training.model_recipe import CounterRecipe, TransformerRecipe

ROOT = Path(__file__).parents[2]


def test_every_plan_makes_sense(tmp_path):
    """Recipes, settings and protocols of each group go together, and no two groups measure the same cell."""
    plans = [group.make_plan(tmp_path, tmp_path / "out", tmp_path / "runs") for group in GROUPS]
    paths = [cell.path for plan in plans for cell in plan.list_cells()]
    assert len(paths) == len(set(paths))


def test_the_tables_hold_what_it_measures():
    """Every cell of the committed tables that a group names is of the recipe and the settings that it has today."""
    results = ROOT / "benchmarks" / "results" / "models"
    plans = [group.make_plan(ROOT, results, ROOT) for group in GROUPS]
    cells = [cell for plan in plans for cell in plan.list_cells()]
    assert [cell.path.relative_to(results).as_posix() for cell in cells if not cell.is_finished()] == []
    assert any(isinstance(cell.recipe.model, TransformerRecipe) and cell.seed == 3 for cell in cells)
    assert any(isinstance(cell.recipe.model, CounterRecipe) for cell in cells)


def test_a_folder_without_the_logs_is_named(tmp_path):
    """One line says what is missing, and nothing is made."""
    command = [sys.executable, "-m", "benchmarks.models", str(tmp_path), "--out", str(tmp_path / "out")]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "ml-1m.txt.gz" in found.stderr
    assert not (tmp_path / "out").exists()

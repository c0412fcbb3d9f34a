"""docs/notebooks: the cells of each notebook run in their order, in a folder of their own, without Jupyter."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[3] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    """Cell by cell; it is committed without outputs, which would be of somebody's machine."""
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    names: dict[str, Any] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), f"{path.name}, {cell['id']}", "exec"), names)  # noqa: S102 - our own
    run = names["run"]
    assert (tmp_path / run.path / "report.html").is_file()
    assert run.recommend(["u000"], k=3).columns == ["user", "rank", "item", "score", "title"]
    ndcg = dict(run.metrics.filter(pl.col("metric") == "NDCG@10").select("model", "value").iter_rows())
    assert ndcg["sasrec"] > ndcg["pop"]

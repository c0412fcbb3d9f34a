"""`benchmark`: finished cells are kept, missing ones measured, and the table says what they say."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training.benchmark.cells import Cell
from training.cli import main
from training.recipe import read_recipe

QUICK = ["--set", "train.device=cpu", "--set", "train.epochs=2"]
SMALL = '[model]\nname = "{}"\nmax_length = 6\nwidth = 8\n[train]\nbatch_size = 8\n'


@pytest.fixture
def bench(tmp_path, cycle_csv):
    """A function: the arguments of a benchmark of small models on the ring's log, whose cells lie in `out`."""
    for name in ("bert4rec", "gru4rec"):
        (tmp_path / f"small-{name}.toml").write_text(SMALL.format(name))

    def arguments(*models, name="ring", more=()):
        named = [str(tmp_path / f"{model}.toml") if model.startswith("small") else model for model in models]
        folders = ["--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
        return [
            *("benchmark", "--data", str(cycle_csv), "--name", name, "--models", ",".join(named)),
            *(*folders, *QUICK, *more),
        ]

    return arguments


def _list_cells(tmp_path):
    return {path.relative_to(tmp_path / "out").as_posix(): path.read_bytes() for path in tmp_path.rglob("*-s*.json")}


def test_cells_become_a_table_a_file_and_a_verdict(tmp_path, bench, capsys):
    """A baseline has one seed, a network each; rows are means over seeds, the verdict names the best of both sides."""
    assert main(bench("pop", "rules", "small-bert4rec", more=["--seeds", "1,2", "--protocols", "P2,P6s"])) == 0
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert "cell 8 of 8" in shown.err
    cells = _list_cells(tmp_path)
    assert len(cells) == 8
    assert "ring/P6s/small-bert4rec-s2.json" in cells
    assert "ring/P2/pop-s2.json" not in cells
    text = (tmp_path / "out" / "benchmark.md").read_text()
    assert shown.out == f"{text}\n"
    row = next(line for line in text.splitlines() if line.startswith("| small-bert4rec"))
    columns = [cell.strip() for cell in row.strip("|").split("|")]
    both = [json.loads(cells[f"ring/P2/small-bert4rec-s{seed}.json"]) for seed in (1, 2)]
    assert columns[1:4] == ["transformer", "2", "all"]
    mean = sum(cell["metrics"]["HR@10"]["value"] for cell in both) / 2
    assert columns[4].startswith(f"{mean:.4f} [")
    assert columns[7] == f"{both[0]['parameters']:,}"
    assert (
        "**On ring under P2 the best transformer, small-bert4rec, loses to the best baseline, rules: its NDCG" in text
    )
    lines = list(csv.DictReader((tmp_path / "out" / "benchmark.csv").read_text().splitlines()))
    assert len(lines) == 8
    assert {line["HR@10"] for line in lines if line["model"] == "rules"} == {"1.0"}
    assert {(line["held_out_users"], line["evaluation"]) for line in lines} == {("all", "2")}
    assert (tmp_path / "out" / "benchmark.png").read_bytes().startswith(b"\x89PNG")


def test_only_what_is_missing_is_measured(tmp_path, bench, capsys):
    """A second command measures nothing, one with another model that one alone; a changed recipe is measured anew."""
    assert main(bench("rules", "small-bert4rec")) == 0
    before = _list_cells(tmp_path)
    assert main(bench("rules", "small-bert4rec")) == 0
    assert "2 of 2 cells are measured, 0 to go" in capsys.readouterr().err
    assert _list_cells(tmp_path) == before
    assert main(bench("small-bert4rec", "small-gru4rec")) == 0
    assert "cell 1 of 1: small-gru4rec" in capsys.readouterr().err
    assert before.items() < _list_cells(tmp_path).items()
    assert main(bench("rules", more=["--set", "train.clip_norm=1"])) == 0
    assert "cell 1 of 1: rules" in capsys.readouterr().err
    text = (tmp_path / "out" / "benchmark.md").read_text()
    assert text.count("| rules | counter |") == 1
    assert "the best baseline, rules" in text


def test_a_finished_run_is_taken(tmp_path, bench, cycle_csv, capsys):
    """A run that `fit` made by the same recipe is not trained again; the cell says what the run says."""
    recipe, run = str(tmp_path / "small-gru4rec.toml"), tmp_path / "elsewhere"
    assert main(["fit", recipe, "--data", str(cycle_csv), "--out", str(run), *QUICK]) == 0
    told = (run / "results.json").read_bytes()
    cell = Cell(
        model="small-gru4rec",
        recipe=read_recipe(recipe, [*QUICK[1::2], "train.seed=1"]),
        data="ring",
        protocol="P2",
        out=tmp_path / "out",
        runs=tmp_path / "runs",
    )
    shutil.copytree(run, cell.run)
    assert main(bench("small-gru4rec")) == 0
    assert f"run {cell.run}" in capsys.readouterr().err
    assert (cell.run / "results.json").read_bytes() == told
    assert json.loads(cell.path.read_text())["metrics"] == json.loads(told)["models"]["gru4rec"]


def test_without_ranks_there_is_no_new_verdict(tmp_path, bench):
    """Documents alone keep the verdict while its two models stand as they did, and are the best; else none is said."""
    assert main(bench("rules", "small-bert4rec")) == 0
    for path in (tmp_path / "runs").rglob("ranks-*.npz"):
        path.unlink()
    assert main(bench("rules", "small-bert4rec")) == 0
    assert "best transformer" in (tmp_path / "out" / "benchmark.md").read_text()
    assert main(bench("pop")) == 0
    assert "best transformer" in (tmp_path / "out" / "benchmark.md").read_text()
    better = tmp_path / "out" / "ring" / "P2" / "pop-s1.json"
    document = json.loads(better.read_text())
    document["metrics"]["NDCG@10"] = dict.fromkeys(("value", "low", "high"), 2.0)
    better.write_text(json.dumps(document))
    assert main(bench("pop")) == 0
    assert "best transformer" not in (tmp_path / "out" / "benchmark.md").read_text()
    better.unlink()
    assert main(bench("rules", more=["--set", "train.clip_norm=1"])) == 0
    assert "best transformer" not in (tmp_path / "out" / "benchmark.md").read_text()


def test_what_counts_is_measured_again_when_evaluation_has_changed(tmp_path, bench, capsys):
    """A counter's cell of an older evaluation is replaced, run and all; a network's cell stays, since it cost hours."""
    assert main(bench("rules", "small-bert4rec")) == 0
    found = {path.name: path for path in tmp_path.rglob("*-s1.json")} | {"run": next(tmp_path.rglob("rules-s1-*"))}
    for path in (found["rules-s1.json"], found["small-bert4rec-s1.json"], found["run"] / "results.json"):
        document = {key: value for key, value in json.loads(path.read_text()).items() if key != "evaluation"}
        if path.parent == found["run"]:
            document["models"]["rules"]["NDCG@10"] = {"value": 0.5, "low": 0.5, "high": 0.5}
        path.write_text(json.dumps(document))
    older = found["small-bert4rec-s1.json"].read_bytes()
    capsys.readouterr()
    assert main(bench("rules", "small-bert4rec")) == 0
    assert "1 of 2 cells are measured, 1 to go" in capsys.readouterr().err
    anew = json.loads(found["rules-s1.json"].read_text())
    assert (anew["evaluation"], anew["metrics"]["NDCG@10"]["value"]) == (2, 1.0)
    assert anew["targets"]["new"]["metrics"]["NDCG@10"] == anew["metrics"]["NDCG@10"]
    assert found["small-bert4rec-s1.json"].read_bytes() == older
    assert "†" not in (tmp_path / "out" / "benchmark.md").read_text()  # it counts nothing, and nothing repeats


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "nobody"], "there is no recipe 'nobody'"),
        (["--models", "rules", "--protocols", "P2,time"], "train another run with --set data.split=time"),
        (["--models", "rules", "--set", "model.heads=2"], "model.heads does not apply to rules"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_refused_first(tmp_path, bench, capsys, arguments, message):
    """Nothing is fit before all cells are known to make sense."""
    assert main([*bench("rules"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_side_information_comes_from_a_file_of_items(tmp_path, bench, capsys):
    """A recipe that reads columns is measured with the items file; without, or without a column, nothing is fit."""
    nova = SMALL.format("nova-bert").replace("width", 'categories = ["shelf"]\nwidth')
    (tmp_path / "small-nova.toml").write_text(nova)
    items = tmp_path / "items.csv"
    for content, more, message in [
        (None, [], "give that file with --items FILE"),
        ("item,rack\ni01,a\n", ["--items", str(items)], "has no 'shelf' for any item of the log, only rack"),
    ]:
        if content:
            items.write_text(content)
        assert main(bench("pop", "small-nova", more=more)) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "runs").exists()
    items.write_text("item,shelf\n" + "".join(f"i{item:02},s{item % 3}\n" for item in range(1, 13)))
    assert main(bench("pop", "small-nova", more=["--items", str(items)])) == 0
    assert set(_list_cells(tmp_path)) == {"ring/P2/pop-s1.json", "ring/P2/small-nova-s1.json"}
    (features,) = tmp_path.rglob("features.json")
    assert json.loads(features.read_text()) == [{"name": "shelf", "values": ["s0", "s1", "s2"]}]


@pytest.mark.parametrize("arguments", [["--protocols", "P9"], ["--seeds", "a"], ["--models", ","]], ids=str)
def test_lists_are_checked(bench, capsys, arguments):
    """A name that is none is an error of the command line."""
    with pytest.raises(SystemExit, match="2"):
        main([*bench("rules"), *arguments])
    assert arguments[0] in capsys.readouterr().err


def test_another_log_wants_another_name(tmp_path, bench, cycle_csv, capsys):
    """Cells of two logs do not share a table; a damaged cell is named."""
    assert main(bench("rules")) == 0
    cycle_csv.write_text(cycle_csv.read_text() + "late,i01,1800000000\n")
    assert main(bench("pop")) == 2
    assert "choose another --name" in capsys.readouterr().err
    assert main(bench("pop", name="longer")) == 0
    (tmp_path / "out/ring/P2/rules-s1.json").write_text("{}")
    assert main(bench("pop", name="longer")) == 2
    assert "rules-s1.json is not a valid benchmark cell: the document lacks model" in capsys.readouterr().err


def test_ctrl_c_keeps_what_is_finished(tmp_path, bench):
    """Stopped in the middle of a fit, the same command goes on with that very run and ends with all cells."""
    command = bench("rules", "small-bert4rec", more=["--set", "train.epochs=120", "--set", "train.patience=120"])
    process = subprocess.Popen(
        [sys.executable, "-m", "training.cli", *command],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 200
    while not list(tmp_path.rglob("metrics.jsonl")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=200)
    assert process.returncode == 130, error
    assert "run the same command to continue" in error
    assert list(_list_cells(tmp_path)) == ["ring/P2/rules-s1.json"]
    assert main(command) == 0
    assert len(_list_cells(tmp_path)) == 2

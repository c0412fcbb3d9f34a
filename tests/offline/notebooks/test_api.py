"""nextitem.training: what the commands do, from Python, with frames in and out."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nextitem.training import FittedRun, InputError, TrainingError, evaluate, fit, fitting, open_run
from nextitem.training import run as run_module
from nextitem.training.frames import DataFile, ItemsFile, to_polars
from training.cli import main
from training.logs.items import read_items

ROOT = Path(__file__).parents[3]
RECIPE = {
    "model": {"name": "sasrec", "max_length": 6, "width": 8, "layers": 1, "heads": 2},
    "train": {"device": "cpu", "epochs": 2, "batch_size": 8, "learning_rate": 1e-2, "warmup_steps": 2},
}


@pytest.fixture(scope="module")
def log(tmp_path_factory, write_cycles) -> Path:
    """The ring's log as a file."""
    return write_cycles(tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="module")
def run(log, tmp_path_factory) -> FittedRun:
    """A run of the log as a frame, whose columns have other names."""
    frame = pl.read_csv(log).rename({"user": "userId", "item": "product_id"})
    items = {"item": ["i01", "i02"], "title": ["One", "Two"], "genres": [["a", "b"], []]}
    return fit(frame, RECIPE, out=tmp_path_factory.mktemp("fitted") / "run", items=pl.DataFrame(items))


def test_a_frame_trains_as_its_file_does(run, log, tmp_path):
    """The same recipe by the command on the same events: the same numbers, and the same log."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        "\n".join(
            f"[{section}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items())
            for section, keys in RECIPE.items()
        )
    )
    assert main(["fit", str(recipe), "--data", str(log), "--out", str(tmp_path / "run")]) == 0
    by_command = open_run(tmp_path / "run")
    assert by_command.results["models"] == run.results["models"]
    read = [
        json.loads((path / "config.json").read_text())["data"]["fingerprint"] for path in (run.path, by_command.path)
    ]
    assert read[0] == read[1]


def test_metrics_and_epochs_are_frames(run):
    """A row for each model and metric, a row for each epoch; `str` is the table that the command prints."""
    assert run.metrics.columns == ["model", "metric", "value", "low", "high"]
    assert set(run.metrics["model"]) == {"sasrec", "pop", "markov", "rules"}
    value = run.metrics.filter(pl.col("model") == "sasrec", pl.col("metric") == "NDCG@10")["value"].item()
    assert value == run.results["models"]["sasrec"]["NDCG@10"]["value"]
    assert run.epochs["epoch"].to_list() == [1, 2]
    assert {"loss", "seconds", "NDCG@10"} < set(run.epochs.columns)
    assert run.verdict in str(run)
    assert "sasrec" in str(run)


def test_evaluate_is_the_commands(run, log, capsys):
    """The same document for a run and for a baseline, by a protocol of either name."""
    for model, data in ((run.path, "P2"), ("pop", "full")):
        assert main(["evaluate", str(model), "--data", str(log), "--json"]) == 0
        assert evaluate(model, log, protocol=data).document == json.loads(capsys.readouterr().out)
    assert run.evaluate().document == evaluate(run.path, log).document
    assert run.evaluate().metrics["model"].unique().to_list() == ["sasrec"]
    with pytest.raises(InputError, match="no protocol 'p2': known are sampled-popular"):
        run.evaluate("p2")


def test_recommend_is_the_commands(run, log, tmp_path):
    """The same lists, with titles where they are known; in the order of the users that are given."""
    out = tmp_path / "lists.parquet"
    assert main(["recommend", str(run.path), "--data", str(log), "--users", "all", "-k", "3", "--out", str(out)]) == 0
    lists = run.recommend(k=3)
    assert_frame_equal(lists.drop("title"), pl.read_parquet(out))
    titles = dict(lists.select("item", "title").iter_rows())
    assert titles.get("i01", "One") == "One"
    assert titles["i03"] is None
    assert run.recommend(["u05", "u01"], k=1)["user"].to_list() == ["u05", "u01"]
    for users, said in (("u05", "not one text"), (["nobody"], "the log has no user nobody")):
        with pytest.raises(InputError, match=said):
            run.recommend(users)
    with pytest.raises(InputError, match="k must be at least 1"):
        run.recommend(k=0)


def test_histories_that_are_in_no_log_are_answered(run, log):
    """As the log's own histories of the same items; what the model does not know is left out, and may be all."""
    walk = pl.read_csv(log).filter(pl.col("user") == "u03")["item"].to_list()
    own = run.recommend(["u03"], k=4).drop("user")
    assert_frame_equal(run.recommend({"new": walk}, k=4).drop("user"), own)
    assert_frame_equal(run.recommend({"new": ["unheard-of", *walk]}, k=4).drop("user"), own)
    assert run.recommend({"z": ["unheard-of"], "a": walk}, k=2)["user"].to_list() == ["z", "z", "a", "a"]
    with pytest.raises(InputError, match="'new' has no history"):
        run.recommend({"new": []})


def test_a_run_that_counts_is_asked_with_its_log(log, tmp_path):
    """Without the log it says so; histories of strangers it cannot answer."""
    fit(log, "markov", out=tmp_path / "run")
    alone = open_run(tmp_path / "run")
    with pytest.raises(InputError, match="give data=, the log of"):
        alone.recommend(["u01"])
    assert len(alone.recommend(["u01"], k=2, data=log)) == 2
    with pytest.raises(InputError, match="needs the log that it was trained on"):
        alone.recommend({"new": ["i01"]})
    assert alone.epochs.is_empty()


def test_the_report_is_written_by_fit_and_anew(run):
    """In the run's folder."""
    page = run.path / "report.html"
    assert page.is_file()
    page.unlink()
    assert run.report() == page
    assert page.is_file()


def test_publish_hands_all_on(run, monkeypatch, tmp_path):
    """The run's own log for neighbours and rules, a frame of items as a file."""
    calls = []

    def publish(given, root, items, **options):
        calls.append((given.path, root, read_items(items)))
        assert options["neighbours"] == options["rules"]
        assert pl.read_parquet(options["rules"]).columns == ["userId", "product_id", "timestamp"]
        assert (options["similar"], options["as_candidate"], options["force"]) == (True, False, False)
        return root / "version"

    monkeypatch.setattr(run_module, "publish_run", publish)
    items = {"item": ["i01"], "price": [3]}
    assert run.publish(tmp_path, items=items, neighbours=True, rules=True, similar=True) == tmp_path / "version"
    assert calls == [(run.path, tmp_path, {"i01": {"price": 3}})]


def test_settings_go_over_recipes(log, tmp_path, monkeypatch):
    """As --set does, None makes a key absent; unnamed runs get folders of their own, one after the other."""
    monkeypatch.chdir(tmp_path)
    first = fit(log, "pop", settings={"data.split": "time", "data.test_share": 0.3, "data.max_user_events": None})
    assert first.results["protocol"] == "time"
    assert (str(first.path), str(fit(log, "pop").path)) == ("runs/pop", "runs/pop-2")
    with pytest.raises(InputError, match=r"did you mean data\.split"):
        fit(log, "pop", settings={"data.spilt": "time"})
    with pytest.raises(TrainingError, match="already holds a run"):
        fit(log, "pop", out="runs/pop")
    with pytest.raises(InputError, match="minutes are for fit without a recipe"):
        fit(log, "pop", minutes=1)
    with pytest.raises(InputError, match="list is no log: give the path of a file"):
        fit([1, 2], "pop")


def test_without_a_recipe_the_command_chooses(log, tmp_path, monkeypatch):
    """With its minutes, its settings and its own log; the run is the one that it found best."""
    orders = []

    def choose(order, _, stop):
        orders.append((order.data, order.out, order.settings, order.clock, stop()))
        assert main(["fit", "pop", "--data", str(order.data), "--out", str(order.out)]) == 0
        return object()

    monkeypatch.setattr(fitting, "fit_automatically", choose)
    monkeypatch.setattr(fitting, "Clock", lambda seconds: seconds)
    chosen = fit(log, minutes=2, settings={"data.split": "time"}, out=tmp_path / "auto")
    assert orders == [(log, tmp_path / "auto", ('data.split="time"',), 120, False)]
    assert chosen.recipe.name == "pop"
    monkeypatch.setattr(fitting, "fit_automatically", lambda *_: None)
    with pytest.raises(KeyboardInterrupt, match="resume=True goes on"):
        fit(log, out=tmp_path / "other")


def test_a_stop_saves_and_says_how_to_go_on(log, tmp_path, monkeypatch):
    """A signal while it trains: KeyboardInterrupt, and the same call with resume=True finishes the run."""

    class Impatient:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def is_asked(self):
            return True

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "Interrupt", Impatient)
        with pytest.raises(KeyboardInterrupt, match="resume=True goes on"):
            fit(log, RECIPE, out=tmp_path / "run")
    assert str(open_run(tmp_path / "run")) == f"sasrec in {tmp_path / 'run'}, not finished"
    assert fit(log, RECIPE, out=tmp_path / "run", resume=True).results["epochs"] == 2


def test_frames_of_pandas_are_read_as_polars():
    """Ids as texts or numbers, missing ones, times with a zone or without; the frame itself is not touched."""
    frame = pd.DataFrame(
        {
            "user": ["u1", None, "u3"],
            "item": [7, 8, 9],
            "rating": [0.5, np.nan, 2.0],
            "kind": pd.Categorical(["a", "b", "a"]),
            "count": pd.array([1, None, 3], dtype="Int64"),
            "naive": pd.to_datetime(["2024-05-01 10:00:00", None, "2024-05-02 00:00:00"]),
            "zoned": pd.to_datetime(["2024-05-01 10:00:00+02:00"] * 3),
        }
    )
    found = to_polars(frame)
    assert found["user"].to_list() == ["u1", None, "u3"]
    assert found["item"].to_list() == [7, 8, 9]
    assert found["kind"].to_list() == ["a", "b", "a"]
    assert found["count"].to_list() == [1, None, 3]
    assert found["rating"].fill_nan(None).to_list() == [0.5, None, 2.0]
    assert found["naive"].dt.to_string("%Y-%m-%dT%H:%M").to_list() == ["2024-05-01T10:00", None, "2024-05-02T00:00"]
    assert found["zoned"].dt.to_string("%Y-%m-%dT%H:%M%z").to_list() == ["2024-05-01T08:00+0000"] * 3


def test_frames_lie_in_files_only_while_they_are_needed():
    """In a folder that nobody else can read, and that goes with the object."""
    file = DataFile({"user": ["u"], "item": ["i"]})
    path = file.path
    assert path.parent.stat().st_mode & 0o077 == 0
    assert pl.read_parquet(path).rows() == [("u", "i")]
    assert file.path == path
    del file
    assert not path.parent.exists()
    items = ItemsFile(pl.DataFrame({"item": ["a", "b"], "tags": [["x", "y"], ["z"]], "price": [1.5, None]}))
    assert read_items(items.path) == {"a": {"tags": ["x", "y"], "price": 1.5}, "b": {"tags": ["z"]}}


PROGRAM = """
import sys
from nextitem.rooms import import_rooms
before = list(sys.path)
try:
    import_rooms("model", "training")
except ImportError as error:
    print(sys.path == before, error)
else:
    import training.errors  # its own rooms are found without the path
    print(sys.path == before, sys.modules["model"].__file__)
"""


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
def test_an_installed_package_finds_its_rooms(tmp_path, taken):
    """Beside foreign packages of the same names, with the path as it was; one that is in use already is named."""
    installed = tmp_path / "installed" / "nextitem"
    (installed / "_rooms").mkdir(parents=True)
    for name in ("__init__.py", "rooms.py"):
        shutil.copy(ROOT / "nextitem" / name, installed / name)
    for room in ("model", "training"):
        (installed / "_rooms" / room).symlink_to(ROOT / room)
    foreign = tmp_path / "foreign" / "model"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("")
    ended = subprocess.run(
        [sys.executable, "-P", "-c", ("import model\n" if taken else "") + PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'foreign'}:{tmp_path / 'installed'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    if taken:
        assert ended.stdout.startswith("True nextitem.training needs a package called 'model' of its own")
        assert str(foreign) in ended.stdout
    else:
        assert ended.stdout == f"True {installed / '_rooms' / 'model' / '__init__.py'}\n"

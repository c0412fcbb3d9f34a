"""The commands as a user calls them."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.harness.plain_versions import write_version
from model.contract.bundle import Bundle, read_bundle
from model.contract.deployment.document import read_deployment
from model.contract.deployment.journal import read_journal
from training import old_names
from training.arguments.parser import make_parser
from training.cli import main
from training.errors import TrainingError
from training.publish.publish import deploy
from training.runs.run import Run

RECIPE = """
[model]
max_length = 6
width = 16
layers = 1
heads = 2

[train]
device = "cpu"
epochs = 15
batch_size = 8
learning_rate = 1e-2
warmup_steps = 2
last_item_share = 0.3
"""


@pytest.fixture
def recipe(tmp_path) -> str:
    """A recipe for a network that trains in a second."""
    path = tmp_path / "small.toml"
    path.write_text(RECIPE)
    return str(path)


def _start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "training.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@dataclass(frozen=True)
class Fitted:
    """A run that `fit` made in a process of its own, and what it was made of."""

    run: Path
    log: Path
    out: str
    err: str

    def read(self, name: str) -> dict:
        """One of the run's JSON documents."""
        return json.loads((self.run / name).read_text())

    def count_events(self) -> list[int]:
        """How often each item stands in the whole log, the held-out events, the newest, among them."""
        return pl.read_csv(self.log)["item"].value_counts(sort=False).sort("item")["count"].to_list()

    def list_pairs(self) -> set[tuple[str, str]]:
        return set(pl.read_csv(self.log).select("user", "item").rows())


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, write_cycles) -> Fitted:
    """One run for all tests that only read it."""
    folder = tmp_path_factory.mktemp("fitted")
    log, run = write_cycles(folder), folder / "run"
    (folder / "small.toml").write_text(RECIPE)
    (folder / "items.csv").write_text("item,title\ni01,One\ni99,Nobody has it\n")
    more = ("--items", folder / "items.csv", "--set", "train.seed=3")
    fit = _start("fit", folder / "small.toml", "--data", log, "--out", run, *more)
    out, err = fit.communicate(timeout=200)
    assert fit.returncode == 0, err
    return Fitted(run, log, out, err)


def test_fit_says_how_good_the_model_is(fitted):
    """Metrics with intervals and who wins on stdout, few lines on stderr."""
    assert re.search(r"^bert4rec +[01]\.\d{4} \[[01]\.\d{4}, [01]\.\d{4}\]", fitted.out, flags=re.MULTILINE)
    assert "No winner: markov and rules have the same NDCG@10." in fitted.out
    assert "Traceback" not in fitted.err
    assert fitted.err.count("\n") < 30


def test_a_run_holds_what_it_was_made_by(fitted):
    """Recipe, log, environment, counts of the whole log, the seed in the results, too."""
    config = fitted.read("config.json")
    assert config["recipe"]["train"]["seed"] == fitted.read("results.json")["seed"] == 3
    assert config["data"]["users"] == 24
    assert config["environment"]["threads"] == 1
    assert np.load(fitted.run / "counts.npy").tolist() == fitted.count_events()


def test_a_run_holds_its_course(fitted):
    """A line for each epoch, from the first on, and a picture."""
    lines = [json.loads(line) for line in (fitted.run / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, len(lines) + 1))
    assert {"loss", "learning_rate", "seconds", "tokens_per_second", "validation"} < lines[0].keys()
    assert (fitted.run / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_evaluate_repeats_what_fit_measured(fitted, capsys):
    """By the same protocol, seed and users."""
    assert main(["evaluate", str(fitted.run), "--data", str(fitted.log), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    described = {"protocol", "evaluation", "seen_items", "repeated_targets", "held_out_users"}
    assert shown.keys() == {*described, "seed", "users", "metrics", "targets"}
    assert {key: shown[key] for key in described} == {key: fitted.read("results.json")[key] for key in described}
    assert (shown["protocol"], shown["seed"], shown["users"]) == ("P2", 12345, 24)
    assert shown["metrics"] == fitted.read("results.json")["models"]["bert4rec"]


def test_recommend_lists_unseen_items_of_every_user(fitted, tmp_path):
    """As a Parquet file, ranked."""
    lists = tmp_path / "lists.parquet"
    options = ["--users", "all", "-k", "3", "--out", str(lists)]
    assert main(["recommend", str(fitted.run), "--data", str(fitted.log), *options]) == 0
    frame = pl.read_parquet(lists)
    assert frame.columns == ["user", "rank", "item", "score"]
    assert frame["user"].n_unique() == 24
    assert not fitted.list_pairs() & set(frame.select("user", "item").rows())


@pytest.fixture(scope="module")
def published(fitted, tmp_path_factory) -> Bundle:
    """The bundle of that run, with neighbours, rules, similar items and a scan in whole numbers."""
    folder = tmp_path_factory.mktemp("bundles")
    counted = ["--neighbours", str(fitted.log), "--rules", str(fitted.log)]
    more = ["--item-scoring", "int8", *counted, "--similar"]
    assert main(["publish", str(fitted.run), "--out", str(folder), *more]) == 0
    return read_bundle(folder)


def test_a_published_bundle_can_be_put_on_trial(fitted, tmp_path, capsys):
    """As the candidate in shadow, which another catalogue's model is only by force; the champion stays."""
    write_version(tmp_path, "v1", ("x", "y", "z"))
    deploy(tmp_path, "v1")
    options = ["publish", str(fitted.run), "--out", str(tmp_path), "--item-scoring", "plain", "--candidate"]
    assert main([*options, "--force"]) == 0
    assert "put it on trial as the candidate" in capsys.readouterr().out
    tried = read_deployment(tmp_path)
    assert (tried.champion, tried.mode, tried.by) == ("v1", "shadow", "publish")
    assert json.loads((tmp_path / str(tried.candidate) / "manifest.json").read_text())["name"] == "bert4rec"


def test_a_bundle_can_be_filtered_by_what_its_items_file_says(fitted, tmp_path, capsys):
    """By all columns that have values of one kind; the others are named, with the reason."""
    items = {
        "i01": {"title": "One", "year": 1999, "tags": ["a", "b"]},
        "i02": {"year": 2000.5, "tags": ["b"], "odd": 1},
    }
    items["i03"] = {"title": "", "odd": "x"}
    (tmp_path / "items.json").write_text(json.dumps(items))
    options = ["--out", str(tmp_path / "bundles"), "--items", str(tmp_path / "items.json")]
    assert main(["publish", str(fitted.run), *options]) == 0
    out, err = capsys.readouterr()
    assert "its items can be filtered by tags, title, year\n" in out
    assert "its items cannot be filtered by 'odd': it mixes numbers and strings\n" in err
    attributes = read_bundle(tmp_path / "bundles").attributes
    assert attributes
    mask = np.zeros(attributes.item_count + 2, dtype=bool)
    attributes.columns["tags"].mark_values(mask, ["b"])
    assert read_bundle(tmp_path / "bundles").vocabulary.decode(np.flatnonzero(mask).tolist()) == ["i01", "i02"]


def test_publishing_changes_the_deployment(tmp_path):
    """The first bundle is the champion, journaled; published again it stays; what is refused is told."""
    for version in ("v1", "v2"):
        write_version(tmp_path, version)
    write_version(tmp_path, "other", ("x", "y", "z"))
    with pytest.raises(TrainingError, match="v2 was published, but the deployment did not change"):
        deploy(tmp_path, "v2", as_candidate=True)
    first = deploy(tmp_path, "v1")
    assert (first.generation, first.champion, first.by) == (1, "v1", "publish")
    assert (tmp_path / "current").read_text() == "v1\n"
    assert deploy(tmp_path, "v1") == first
    assert [entry["action"] for entry in read_journal(tmp_path)] == ["use"]
    with pytest.raises(TrainingError, match="another catalogue"):
        deploy(tmp_path, "other")
    assert deploy(tmp_path, "other", force=True).champion == "other"


def test_a_bundle_says_where_it_comes_from(fitted, published):
    """The log's fingerprint and newest event, the run's metrics, titles and counts."""
    data, results = fitted.read("config.json")["data"], fitted.read("results.json")
    assert published.manifest.data_fingerprint == data["fingerprint"]
    assert published.manifest.last_event_at == data["last_event_at"]
    assert published.manifest.metrics["HR@10"] == results["models"]["bert4rec"]["HR@10"]["value"]
    assert json.loads(published.metadata[0]) == {"title": "One"}
    assert published.counts.tolist() == fitted.count_events()


def test_a_bundle_scans_as_it_was_told_and_has_examples(published):
    """Whole numbers in the graph, golden examples beside it."""
    assert published.similar is not None
    for graph in (published, published.similar):
        assert b"MatMulInteger" in graph.network
        assert len(graph.golden) > 10


def test_a_bundle_holds_the_histories_of_the_neighbours_file(fitted, published):
    """Every user is a session, the first one's items those of the first user."""
    sessions = published.sessions
    met = sessions.items[sessions.starts[0] : sessions.starts[1]]
    pairs = {("u00", item) for item in published.vocabulary.decode(met.tolist())}
    assert pairs == {pair for pair in fitted.list_pairs() if pair[0] == "u00"}
    assert len(sessions.moments) == 24


def test_a_bundle_holds_what_follows_what_in_the_rules_file(fitted, published):
    """Items that somebody met after the item, and no others; the weightiest first."""
    rules, followed = published.rules, set()
    for item in range(1, len(published.vocabulary) + 1):
        own = slice(rules.starts[item], rules.starts[item + 1])
        assert (np.diff(rules.weights[own]) <= 0).all()
        followed |= {(item, follower) for follower in rules.followers[own].tolist()}
    met: dict[str, list[int]] = {}
    for line in fitted.log.read_text().splitlines()[1:]:
        user, item_id = line.split(",")[:2]
        met.setdefault(user, []).append(published.vocabulary.index_of(item_id))
    after = {(one, other) for items in met.values() for place, one in enumerate(items) for other in items[place + 1 :]}
    assert followed == {(one, other) for one, other in after if one != other}


def test_ctrl_c_saves_and_the_resumed_run_is_the_whole_one(tmp_path, cycle_csv, recipe, capsys):
    """SIGINT ends with 130 and says how to go on; resumed, the results equal those of a run never stopped."""
    settings = ["--set", "train.epochs=25", "--set", "train.patience=25"]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    fit = _start("fit", recipe, "--data", cycle_csv, "--out", stopped, *settings)
    deadline = time.monotonic() + 120
    while not (stopped / "metrics.jsonl").exists() and fit.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    fit.send_signal(signal.SIGINT)
    _, err = fit.communicate(timeout=120)
    assert fit.returncode == 130, err
    assert "with --resume to continue" in err
    assert "Traceback" not in err
    assert not (stopped / "results.json").exists()
    for out, more in ((stopped, ["--resume"]), (whole, [])):
        again = _start("fit", recipe, "--data", cycle_csv, "--out", out, *settings, *more)
        _, err = again.communicate(timeout=200)
        assert again.returncode == 0, err
    assert (stopped / "kept.safetensors").read_bytes() == (whole / "kept.safetensors").read_bytes()
    results = [json.loads((out / "results.json").read_text()) for out in (stopped, whole)]
    assert results[0]["models"] == results[1]["models"]
    epochs = [Run.open(out).read_epochs() for out in (stopped, whole)]
    assert [line["loss"] for line in epochs[0]] == [line["loss"] for line in epochs[1]]
    assert main(["fit", recipe, "--data", str(cycle_csv), "--out", str(whole), *settings, "--resume"]) == 0
    assert "No winner: markov and rules" in capsys.readouterr().out


def test_a_model_no_better_than_popularity_is_said_aloud(tmp_path, cycle_csv, recipe, capsys):
    """`fit` warns of it at its end and `publish` again; both do what they were told."""
    run = tmp_path / "run"
    untrained = ["train.learning_rate=1e-9", "train.epochs=1", "train.seed=1"]
    settings = [word for setting in untrained for word in ("--set", setting)]
    assert main(["fit", recipe, "--data", str(cycle_csv), "--out", str(run), *settings]) == 0
    assert re.search(
        r"WARNING: the model does not beat popularity beyond chance: its NDCG@10 is [+-]", capsys.readouterr().err
    )
    assert main(["publish", str(run), "--out", str(tmp_path / "bundles")]) == 0
    assert "WARNING: the model does not beat popularity" in capsys.readouterr().err


def test_a_tie_is_no_win(tmp_path, capsys):
    """With one item all models are right, and none is above another."""
    log = tmp_path / "one.csv"
    log.write_text("user,item,timestamp\n" + "".join(f"u{user},i,{day}\n" for user in range(9) for day in range(4)))
    assert main(["fit", "pop", "--data", str(log), "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "No winner: pop and markov have the same NDCG@10." in out
    assert " wins: its" not in out


@pytest.mark.parametrize("begun", [True, False])
def test_two_trainings_never_share_a_run(tmp_path, cycle_csv, recipe, capsys, begun):
    """The second is refused and changes nothing, be the run begun or about to be. A finished one is read."""
    run = tmp_path / "run"
    fit = ["fit", recipe, "--data", str(cycle_csv), "--out", str(run), "--set", "train.epochs=1"]
    longer = [*fit, "--resume", "--set", "train.epochs=2"] if begun else fit
    if begun:
        assert main(fit) == 0
    else:
        run.mkdir()
    with (run / "fit.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        assert main(longer) == 2
        assert f"another training is under way: it holds {run / 'fit.lock'}" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
        assert not begun or main([*fit, "--resume"]) == 0
    assert main(longer) == 0


def test_a_killed_run_leaves_a_whole_checkpoint(tmp_path, cycle_csv, recipe):
    """SIGKILL at any moment: whatever checkpoint is there can be resumed, and no half file has its name."""
    run = tmp_path / "run"
    settings = ["--set", "train.epochs=2000", "--set", "train.patience=2000"]
    fit = _start("fit", recipe, "--data", cycle_csv, "--out", run, *settings)
    deadline = time.monotonic() + 120
    while not (run / "checkpoint" / "last.safetensors").exists() and fit.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    fit.kill()
    fit.communicate(timeout=120)
    assert fit.returncode == -signal.SIGKILL
    again = _start("fit", recipe, "--data", cycle_csv, "--out", run, *settings, "--resume")
    before = (run / "checkpoint" / "last.safetensors").stat().st_mtime_ns
    deadline = time.monotonic() + 120
    while (run / "checkpoint" / "last.safetensors").stat().st_mtime_ns == before and time.monotonic() < deadline:
        time.sleep(0.01)
    again.send_signal(signal.SIGTERM)
    _, err = again.communicate(timeout=120)
    assert again.returncode == 128 + signal.SIGTERM, err
    epochs = [line["epoch"] for line in Run.open(run).read_epochs()]
    assert epochs == list(range(1, len(epochs) + 1))


def test_a_run_is_evaluated_under_the_split_it_was_trained_by(tmp_path, cycle_csv, recipe, capsys):
    """A run cut by time is measured by time, and refused where its training data holds test events."""
    late = tmp_path / "late.csv"
    late.write_text(cycle_csv.read_text() + "new,i03,1700000500\n")  # a user whose training history is empty
    run = str(tmp_path / "run")
    settings = ["--set", "data.split=time", "--set", "train.epochs=1", "--set", "train.keep=last"]
    assert main(["fit", recipe, "--data", str(late), "--out", run, *settings]) == 0
    assert capsys.readouterr().out.startswith("time: one moment parts all users' events")
    assert main(["evaluate", run, "--data", str(late), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["protocol"], shown["users"]) == ("time", 16)
    assert shown["metrics"] == json.loads(Path(run, "results.json").read_text())["models"]["bert4rec"]
    assert main(["evaluate", run, "--data", str(late), "--protocol", "P2"]) == 2
    assert "are partly in its training data" in capsys.readouterr().err
    assert main(["evaluate", run, "--data", str(late), "--set", "data.test_share=0.2"]) == 2
    assert "the moment of the split must stay the same" in capsys.readouterr().err
    assert main(["evaluate", run, "--data", str(late), "--train-only"]) == 2
    assert "--train-only applies to baselines" in capsys.readouterr().err
    assert main(["evaluate", "markov", "--data", str(late), "--protocol", "time", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["HR@1"]["value"] == 1.0


def test_popularity_under_p1_counts_test_events_unless_told_otherwise(tmp_path, capsys):
    """Item x is the test item of everyone: counted as the authors do it is the most popular, honestly the least."""
    log = tmp_path / "log.txt"
    rows = [[f"u{user}", f"i{user + step}"] for user in range(1, 121) for step in range(4)]
    log.write_text(
        "".join(f"{user} {item}\n" for user, item in rows) + "".join(f"u{user} x\n" for user in range(1, 121))
    )
    hits = []
    for more in ([], ["--train-only"]):
        assert main(["evaluate", "pop", "--data", str(log), "--protocol", "P1", "--seed", "4", "--json", *more]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["protocol"], shown["seed"], shown["users"]) == ("P1", 4, 120)
        hits.append((shown["metrics"]["HR@1"]["value"], shown["metrics"]["HR@10"]["value"]))
    assert hits == [(1.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize("baseline", ["pop", "markov"])
def test_baselines_are_evaluated_like_runs(cycle_csv, capsys, baseline):
    """On the ring, Markov knows every next item and popularity none better than chance; both name the protocol."""
    assert main(["evaluate", baseline, "--data", str(cycle_csv), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["protocol"], shown["users"]) == ("P2", 24)
    assert shown["metrics"]["HR@10"].keys() == {"value", "low", "high"}
    assert all(metric["low"] <= metric["value"] <= metric["high"] for metric in shown["metrics"].values())
    assert (shown["metrics"]["HR@1"]["value"] == 1.0) == (baseline == "markov")
    assert main(["evaluate", baseline, "--data", str(cycle_csv)]) == 0
    assert baseline in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "none", "--data", "{csv}", "--out", "{out}"], "there is no recipe 'none'"),
        (
            ["fit", "bert4rec-small", "--data", "{csv}", "--out", "{out}", "--set", "train.epoch=1"],
            "did you mean train.epochs",
        ),
        (["fit", "bert4rec-small", "--data", "{none}", "--out", "{out}"], "is neither a file"),
        (["fit", "bert4rec-small", "--data", "{csv}", "--out", "{full}"], "is not empty: choose another --out"),
        (["fit", "bert4rec-small", "--data", "{two}", "--out", "{out}"], "no user has 3 events"),
        (
            ["fit", "bert4rec-small", "--data", "{micro}", "--out", "{out}"],
            "lies outside the years 1900 to 2286",
        ),
        (["fit", "bert4rec-small", "--data", "{csv}", "--out", "{out}", "--items", "{two}x"], "is not a file"),
        (["evaluate", "{out}", "--data", "{csv}"], "is not a run: it has no config.json"),
        (
            ["evaluate", "pop", "--data", "{csv}", "--set", "train.epochs=1"],
            "this command reads only data.* and model.*",
        ),
        (["evaluate", "pop", "--data", "{csv}", "--protocol", "P1"], "fewer than 100 items"),
        (["evaluate", "pop", "--data", "{csv}", "--seed", "-1"], "--seed must be at least 0"),
        (["recommend", "{out}", "--data", "{csv}", "--users", "all", "-k", "0"], "-k must be at least 1"),
        (["recommend", "{out}", "--data", "{csv}", "--users", "all", "--out", "x.json"], ".parquet or .csv"),
        (["publish", "{out}", "--out", "{full}"], "is not a run"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_2(tmp_path, cycle_csv, capsys, arguments, message):
    """What the user got wrong is said on stderr, last and without a traceback, and nothing is left behind."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "two.csv").write_text("user,item,timestamp\nu,a,1\nu,b,2\n")
    (tmp_path / "micro.csv").write_text(re.sub(r"\d{10}$", r"\g<0>0000", cycle_csv.read_text(), flags=re.MULTILINE))
    names = {name: tmp_path / name for name in ("out", "full")}
    logs = {name: tmp_path / f"{name}.csv" for name in ("none", "two", "micro")}
    filled = [part.format(csv=cycle_csv, **logs, **names) for part in arguments]
    assert main(filled) == 2
    shown = capsys.readouterr()
    *read, said = shown.err.splitlines()
    assert message in said
    assert all(line.startswith("nextitem-train: ") for line in [*read, said])
    assert not any(message in line for line in read)
    assert shown.out == ""
    assert not (tmp_path / "out").exists()


def test_a_run_is_only_resumed_as_it_was_begun(tmp_path, cycle_csv, recipe, capsys):
    """An existing run is neither overwritten nor continued with another recipe or log; unfinished, it is no bundle."""
    run = str(tmp_path / "run")
    fit = ["fit", recipe, "--data", str(cycle_csv), "--out", run, "--set", "train.epochs=1"]
    assert main(fit) == 0
    assert main(fit) == 2
    assert "already holds a run: continue it with --resume" in capsys.readouterr().err
    assert main([*fit, "--resume", "--set", "train.seed=8"]) == 2
    said = capsys.readouterr().err
    assert "was started with train.seed = 1, not 8" in said
    assert "the same recipe, except train.epochs and train.budget_seconds" in said
    other = tmp_path / "other.csv"
    other.write_text(cycle_csv.read_text().replace("u00,", "v00,"))
    assert main([*fit, "--resume", "--data", str(other)]) == 2
    assert "was started on another log" in capsys.readouterr().err
    (tmp_path / "run" / "results.json").unlink()
    assert main(["publish", run, "--out", str(tmp_path / "bundles")]) == 2
    assert "is not finished" in capsys.readouterr().err
    (tmp_path / "run" / "kept.safetensors").unlink()
    assert main(["evaluate", run, "--data", str(cycle_csv)]) == 2
    assert "has no weights yet" in capsys.readouterr().err
    (tmp_path / "run" / "config.json").write_text("{")
    assert main(["evaluate", run, "--data", str(cycle_csv)]) == 2
    assert "config.json is not what a run writes" in capsys.readouterr().err


def test_a_finished_run_goes_on_when_it_is_given_more(tmp_path, cycle_csv, recipe, capsys):
    """More epochs, then an hour instead of no budget: trained, tested and written anew, the same bits each time."""
    weights = []
    for name in ("one", "two"):
        run = tmp_path / name
        fit = ["fit", recipe, "--data", str(cycle_csv), "--out", str(run), "--set", "train.keep=last"]
        assert main([*fit, "--set", "train.epochs=2"]) == 0
        more = [*fit, "--resume", "--set", "train.epochs=5"]
        assert main(more) == 0
        assert "Kept epoch 5 of 5 (all 5 epochs done)" in capsys.readouterr().out
        opened = Run.open(run)
        assert [line["epoch"] for line in opened.read_epochs()] == [1, 2, 3, 4, 5]
        assert opened.config["recipe"]["train"]["epochs"] == 5
        weights.append((run / "kept.safetensors").read_bytes())
    assert weights[0] == weights[1]
    again = (run / "results.json").stat().st_mtime_ns
    assert main(more) == 0  # nothing changed: nothing is done
    assert (run / "results.json").stat().st_mtime_ns == again
    assert main([*more, "--set", "train.budget_seconds=3600"]) == 0  # five epochs are all the same
    assert (run / "kept.safetensors").read_bytes() == weights[1]
    assert Run.open(run).recipe.train.budget_seconds == 3600
    assert main([*fit, "--resume", "--set", "train.epochs=3", "--set", "train.budget_seconds=3600"]) == 0
    assert "Kept epoch 5 of 5 (all 3 epochs done)" in capsys.readouterr().out


def test_other_logs_are_ranked_by_what_the_run_knows(tmp_path, cycle_csv, recipe, capsys):
    """Unknown items are left out and counted, unknown users refused, tables and CSV say the same."""
    run = str(tmp_path / "run")
    assert main(["fit", recipe, "--data", str(cycle_csv), "--out", run, "--set", "train.epochs=1"]) == 0
    other = tmp_path / "other.csv"
    other.write_text("user,item,timestamp\nx,i01,1\nx,new,2\nx,i02,3\nx,i03,4\ny,new,1\n")
    capsys.readouterr()
    assert main(["evaluate", run, "--data", str(other)]) == 0
    assert "is not the log that" in capsys.readouterr().err
    base = ["recommend", run, "--data", str(other), "-k", "20"]
    assert main([*base, "--users", "y,x", "--out", str(tmp_path / "l.csv")]) == 0
    capsys.readouterr()
    frame = pl.read_csv(tmp_path / "l.csv")
    assert frame["user"].unique(maintain_order=True).to_list() == ["y", "x"]
    assert frame.filter(user="y")["rank"].to_list() == list(range(1, 13))
    assert frame.filter(user="x")["item"].n_unique() == 12 - 3
    assert main([*base, "--users", "x"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in table[1:]] == frame.filter(user="x")["item"].to_list()
    assert main([*base, "--users", "x,z"]) == 2
    assert "the log has no user z" in capsys.readouterr().err


def test_runs_are_compared_question_by_question(tmp_path, cycle_csv, recipe, capsys):
    """Two runs by what they wrote and anew beside Markov: intervals, paired differences, settings and a picture."""
    first, second = tmp_path / "one", tmp_path / "two"
    for run, seed in ((first, 1), (second, 2)):
        settings = ["--set", f"train.seed={seed}", "--set", "train.epochs=2"]
        assert main(["fit", recipe, "--data", str(cycle_csv), "--out", str(run), *settings]) == 0
    capsys.readouterr()
    picture = tmp_path / "picture.png"
    base = ["compare", "--out", str(picture), str(first), str(second)]
    assert main([*base, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["protocol"], shown["users"], shown["against"]) == ("P2", 24, str(first))
    assert shown["settings"] == {"train.seed": {str(first): 1, str(second): 2}}
    values = {name: metrics["NDCG@10"]["value"] for name, metrics in shown["models"].items()}
    results = [json.loads((run / "results.json").read_text())["models"]["bert4rec"] for run in (first, second)]
    assert list(values.values()) == [metrics["NDCG@10"]["value"] for metrics in results]
    difference = shown["differences"][str(second)]["NDCG@10"]
    assert difference["value"] == pytest.approx(values[str(second)] - values[str(first)])
    assert difference["low"] <= difference["value"] <= difference["high"]
    assert picture.read_bytes().startswith(b"\x89PNG")

    assert main([*base, "markov", "--data", str(cycle_csv), "--json"]) == 0
    anew = json.loads(capsys.readouterr().out)
    assert anew["models"][str(first)]["NDCG@10"] == shown["models"][str(first)]["NDCG@10"]
    assert anew["models"]["markov"]["HR@1"]["value"] == 1.0
    assert anew["differences"]["markov"]["HR@1"]["low"] > 0
    assert main([*base, "markov", "--data", str(cycle_csv)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^markov .*\+0\.\d{4} \[.* beyond chance: .*NDCG@10, MRR$", text, flags=re.MULTILINE)
    assert f"train.seed: {first} 1, {second} 2" in text


def test_seeds_of_one_recipe_count_as_one(tmp_path, cycle_csv, recipe, capsys):
    """Their metrics are averaged user by user, by what runs wrote and anew, and the difference is that of the means."""
    runs = {(masks, seed): str(tmp_path / f"{masks}-{seed}") for masks in (0.2, 0.6) for seed in (1, 2)}
    for (masks, seed), run in runs.items():
        settings = [
            "--set",
            f"train.seed={seed}",
            "--set",
            f"train.mask_probability={masks}",
            "--set",
            "train.epochs=1",
        ]
        assert main(["fit", recipe, "--data", str(cycle_csv), "--out", run, *settings]) == 0
    capsys.readouterr()
    base = ["compare", "--average-seeds", "--out", str(tmp_path / "picture.png"), *runs.values()]
    assert main([*base, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    few, many = runs[0.2, 1], runs[0.6, 1]
    assert shown["seeds"] == {few: [few, runs[0.2, 2]], many: [many, runs[0.6, 2]]}
    assert shown["settings"] == {"train.mask_probability": {few: 0.2, many: 0.6}}
    ndcg = {
        key: json.loads(Path(run, "results.json").read_text())["models"]["bert4rec"]["NDCG@10"]["value"]
        for key, run in runs.items()
    }
    assert shown["models"][many]["NDCG@10"]["value"] == pytest.approx((ndcg[0.6, 1] + ndcg[0.6, 2]) / 2)
    difference = shown["differences"][many]["NDCG@10"]
    assert difference["value"] == pytest.approx((ndcg[0.6, 1] + ndcg[0.6, 2] - ndcg[0.2, 1] - ndcg[0.2, 2]) / 2)
    assert difference["low"] <= difference["value"] <= difference["high"]

    assert main([*base, "markov", "--data", str(cycle_csv), "--json"]) == 0
    anew = json.loads(capsys.readouterr().out)
    assert anew["models"][many]["NDCG@10"] == shown["models"][many]["NDCG@10"]
    assert anew["seeds"]["markov"] == ["markov"]
    assert main(base) == 0
    assert f"{few}: {few}, {runs[0.2, 2]}" in capsys.readouterr().out
    assert main(["compare", few, runs[0.2, 2], "--average-seeds"]) == 2
    assert "seeds of one recipe" in capsys.readouterr().err


def test_runs_that_cannot_be_paired_are_refused(tmp_path, cycle_csv, recipe, capsys):
    """Another log, another split, one run twice, one run alone, no picture left behind."""
    other = tmp_path / "other.csv"
    other.write_text(cycle_csv.read_text().replace("u00,", "v00,"))
    runs = {name: str(tmp_path / name) for name in ("one", "other", "timed")}
    fit = ["fit", recipe, "--set", "train.epochs=1"]
    assert main([*fit, "--data", str(cycle_csv), "--out", runs["one"]]) == 0
    assert main([*fit, "--data", str(other), "--out", runs["other"]]) == 0
    assert main([*fit, "--data", str(cycle_csv), "--out", runs["timed"], "--set", "data.split=time"]) == 0
    capsys.readouterr()
    out = ["--out", str(tmp_path / "picture.png")]
    data = ["--data", str(cycle_csv)]
    for arguments, message in (
        ([runs["one"], runs["other"]], "were tested on another log: give --data FILE"),
        ([runs["one"], runs["timed"]], "were tested on another protocol"),
        ([runs["one"], runs["timed"], *data], "are partly in its training data"),
        ([runs["one"], f"{tmp_path}/./one"], "takes each run only once"),
        ([runs["one"]], "needs at least two runs"),
        ([runs["one"], runs["other"], "--protocol", "P2"], "--protocol needs --data"),
        ([runs["one"], "pop"], "pop is not a run"),
        ([runs["one"], runs["other"], *data, "--seed", "-1"], "--seed must be at least 0"),
    ):
        assert main(["compare", *arguments, *out]) == 2
        assert message in capsys.readouterr().err
    Path(runs["other"], "test_ranks.npz").write_bytes(b"PK")
    assert main(["compare", runs["other"], runs["other"] + "/../one", *out]) == 2
    capsys.readouterr()
    assert not (tmp_path / "picture.png").exists()


def test_describe_prints_the_papers_table(tmp_path, capsys):
    """Counts, density (4 of 6 pairs), repeats and ties of a small log, worked by hand, as a table and as JSON."""
    log = tmp_path / "log.csv"
    rows = ["a,x,1", "a,y,5", "a,x,5", "b,x,2", "b,z,3"]
    log.write_text("user,item,timestamp\n" + "\n".join(rows) + "\n")
    assert main(["describe", "--data", str(log)]) == 0
    head, row, *_ = shown = capsys.readouterr().out.splitlines()
    assert head.split() == ["data", "users", "items", "actions", "avg.", "length", "density"]
    assert row.split() == ["log.csv", "2", "3", "5", "2.5", "66.67%"]
    assert "lengths 2 to 3, median 2.5" in shown
    assert "20.0% of the actions repeat an item of the same user" in shown
    assert "40.0% of the actions share their time with another of the same user, the last one for 50.0%" in shown[-2]
    assert shown[-1].startswith("WARNING: 2 of 3 items (66.7%) occur in one event only")
    assert main(["describe", "--data", str(log), "--set", "data.min_item_events=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["users"], found["items"], found["actions"], found["longest"]) == (2, 1, 3, 2)
    assert (found["first_event_at"], found["last_event_at"]) == ("1970-01-01T00:00:01Z", "1970-01-01T00:00:05Z")
    assert (found["tied_share"], found["users_with_tied_last"]) == (0, 0)
    plain = tmp_path / "log.txt"
    plain.write_text("a x\nb y\n")
    assert main(["describe", "--data", str(plain)]) == 0
    assert "\nno times: the order of the file counts\n" in capsys.readouterr().out


def test_help_is_instant_and_needs_no_torch():
    """`--help` imports neither torch nor polars."""
    code = (
        "import sys, training.cli as c\n"
        "try: c.main(['--help'])\n"
        "except SystemExit as e: print(e.code, {'torch', 'polars'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "recommend" in answer.stdout
    assert answer.stdout.endswith("0 set()\n")


def test_the_old_name_of_item_scoring_is_announced(capsys, monkeypatch):
    """`publish --scan` still works, and says once what the option is called now."""
    monkeypatch.setattr(old_names, "_announced", set())
    for option, lines in (("--item-scoring", 0), ("--scan", 1), ("--scan", 0)):
        assert make_parser().parse_args(["publish", "run", "--out", "out", option, "int8"]).item_scoring == "int8"
        assert capsys.readouterr().err.count("--scan is now --item-scoring") == lines

"""`fit` without a recipe on logs whose law is known: what wins is said, published and served."""

import json
import re

import numpy as np
import pytest

from model.contract.bundle import read_bundle
from training.cli import main
from training.runs.run import Run

DAY = 86_400
QUICK = [
    *("--minutes", "1", "--set", "train.device=cpu", "--set", "train.epochs=2"),
    *("--set", "model.width=8", "--set", "model.layers=1"),
    *("--set", "model.recent_days=null"),  # so that the network knows of no fashion, and a counter wins
]


@pytest.fixture(scope="module")
def fashion(tmp_path_factory):
    """A log of twelve weeks in which everybody takes what is in fashion: ten items for eight weeks, then ten others."""
    draw = np.random.default_rng(5)
    taste = 1 / np.arange(1, 11) / np.sum(1 / np.arange(1, 11))
    rows = []
    for user in range(1200):
        for week in draw.permutation(12)[:3]:
            item = draw.choice(10, p=taste) + 10 * (week >= 8) if draw.random() < 0.9 else draw.integers(20)
            rows.append(f"u{user:04},i{item:02},{1_700_000_000 + 7 * DAY * week + draw.integers(7 * DAY)}")
    path = tmp_path_factory.mktemp("fashion") / "fashion.csv"
    path.write_text("user,item,timestamp\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def fitted(fashion, tmp_path_factory):
    """What the command made of it."""
    out = tmp_path_factory.mktemp("fitted") / "auto"
    assert main(["fit", "--data", str(fashion), "--out", str(out), *QUICK]) == 0
    return out


def test_last_weeks_fashion_wins(fitted):
    """By time, popularity of late beats all others: the record names it, and a run of it stands there."""
    results = Run(fitted / "network").read_results()
    assert results["protocol"] == "time"
    assert {"pop", "recent-pop", "markov", "rules", "item-knn", "session-knn", "sasrec", "sasrec-rules"} == results[
        "models"
    ].keys()
    assert json.loads((fitted / "auto.json").read_text())["winner"] == "recent-pop"
    assert Run.open(fitted).recipe.name == "recent-pop"


def test_the_winner_is_published(fitted, fashion, tmp_path, capsys):
    """The folder that was fit is what `publish` takes: its bundle is the winner's, whole log counted."""
    assert main(["publish", str(fitted), "--out", str(tmp_path / "bundles"), "--neighbours", str(fashion)]) == 0
    bundle = read_bundle(tmp_path / "bundles")
    assert bundle.manifest.name == "recent-pop"
    assert bundle.sessions is not None
    assert bundle.golden[0].expected_items[:2] == ("i10", "i11")
    capsys.readouterr()
    assert main(["publish", str(fitted), "--out", str(tmp_path / "bundles"), "--similar"]) == 1
    assert "no item table" in capsys.readouterr().err


def test_it_says_what_it_does(fitted, fashion, capsys):
    """Resumed when it is finished, it prints the verdict again; begun anew in the same folder, it refuses."""
    assert main(["fit", "--data", str(fashion), "--out", str(fitted), "--resume", *QUICK]) == 0
    said = capsys.readouterr().out
    assert "recent-pop wins: its NDCG@10 is" in said
    assert re.search(r"^recent-pop +-0\.\d+ .* worse$", said, re.MULTILINE)
    assert f"nextitem-train publish {fitted} --out bundles" in said
    assert main(["fit", "--data", str(fashion), "--out", str(fitted), *QUICK]) == 2
    assert "already holds a run" in capsys.readouterr().err


def test_a_stopped_fit_goes_on(tmp_path, cycle_csv, capsys, monkeypatch):
    """Five sentences before the training, the default folder, a stop, and after --resume a verdict."""
    monkeypatch.chdir(tmp_path)
    arguments = ["fit", "--data", str(cycle_csv), *QUICK]
    with monkeypatch.context() as patch:
        patch.setattr("training.fit.interrupt.Interrupt.is_asked", lambda _: True)
        assert main(arguments) == 130
    said = capsys.readouterr().out
    for part in (
        "cycles.csv: 168 events of 24 users and 12 items",
        "Tested on the last event of each of 24 users, since by time only",
        "Trained: sasrec over the newest",
        "Beside it, counted in seconds: pop, recent-pop, markov, rules, item-knn, session-knn.",
        "Time: about",
    ):
        assert part in said
    assert main(["publish", "runs/auto", "--out", "bundles"]) == 2
    assert "is not finished" in capsys.readouterr().err
    assert main([*arguments, "--resume"]) == 0
    assert "nextitem-train publish runs/auto --out bundles" in capsys.readouterr().out
    winner = json.loads((tmp_path / "runs" / "auto" / "auto.json").read_text())["winner"]
    assert (tmp_path / "runs" / "auto" / winner / "results.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rules", "--minutes", "3"], "--minutes is for fit without a recipe"),
        (["--set", "model.name=pop"], "pop counts: fit it by its name"),
        (["--set", "data.split=none"], "leaves nothing to choose by"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, cycle_csv, capsys, arguments, message):
    """In a sentence."""
    assert main(["fit", *arguments, "--data", str(cycle_csv), "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err

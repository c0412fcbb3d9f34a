"""Popularity discounted: by the run's recipe or in its place, offline and in the bundle, by training events alone."""

import json

import numpy as np
import pytest
import torch

from model.contract.bundle import read_bundle
from model.nets.registry import make_network
from training.cli import main
from training.runs.popularity_discount import discount_popularity
from training.runs.run import Run

RECIPE = """
[model]
name = "{network}"
max_length = 6
width = 8

[train]
device = "cpu"
epochs = 1
batch_size = 8
"""


@pytest.mark.parametrize("network", ["bert4rec", "sasrec"])
def test_the_log_of_its_share_is_taken_off_an_items_score(network):
    """Every history's scores move alike, an item without events counts as one with one."""
    torch.manual_seed(2)
    asked = torch.tensor([[0, 3, 5], [2, 1, 5]]), torch.tensor([2, 3])
    ranked = make_network(network, item_count=4, max_length=3, width=8, layers=1, heads=1).eval()
    with torch.inference_mode():
        before = ranked(*asked)
    discount_popularity(ranked, np.array([0, 9, 4, 3]), 1.5)
    with torch.inference_mode():
        after = ranked(*asked)
    expected = before - 1.5 * torch.log(torch.tensor([1, 10, 5, 4]) / 20)
    torch.testing.assert_close(after, expected)


def fit(folder, network, *settings):
    """A finished run of walks among popular and rare items, on a log whose last events are all of item i01."""
    (folder / "small.toml").write_text(RECIPE.format(network=network))
    draw = np.random.default_rng(4)
    walks = [[*2 + draw.integers(40, size=6) ** 2 // 40, 0, 1] for _ in range(40)]
    rows = [f"u{u:02},i{i:02},{1_700_000_000 + t}" for u, walk in enumerate(walks) for t, i in enumerate(walk)]
    (folder / "log.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n")
    run = folder / f"{network}{len(settings)}"
    arguments = ["fit", str(folder / "small.toml"), "--data", str(folder / "log.csv"), "--out", str(run)]
    assert main([*arguments, *(word for setting in settings for word in ("--set", setting))]) == 0
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a log and a run whose recipe has no discount."""
    folder = tmp_path_factory.mktemp("discount")
    fit(folder, "bert4rec")
    return folder


def evaluate(folder, capsys, run, *options):
    """The metrics of a run as JSON."""
    capsys.readouterr()
    assert main(["evaluate", str(run), "--data", str(folder / "log.csv"), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["metrics"]


def test_a_recipes_discount_and_one_in_its_place_are_one(folder, capsys):
    """Same weights, same metrics: training knows nothing of it, and `fit` measured the run with it."""
    plain, own = folder / "bert4rec0", fit(folder, "bert4rec", "model.popularity_discount=2")
    assert (plain / "kept.safetensors").read_bytes() == (own / "kept.safetensors").read_bytes()
    discounted = evaluate(folder, capsys, own)
    assert discounted == evaluate(folder, capsys, plain, "--popularity-discount", "2")
    assert discounted == json.loads((own / "results.json").read_text())["models"]["bert4rec"]
    assert evaluate(folder, capsys, plain) == evaluate(folder, capsys, own, "--popularity-discount", "0")
    assert evaluate(folder, capsys, plain)["popularity@10"]["value"] > discounted["popularity@10"]["value"] + 0.05


def test_no_test_event_counts(folder):
    """Item i01 occurs as everyone's last event alone: its share is that of an item without events."""
    counts = np.load(folder / "bert4rec0" / "trained.npy")
    assert counts[1] == 0
    assert np.load(folder / "bert4rec0" / "counts.npy")[1] == 40


def test_a_bundle_has_the_discount_and_no_metrics_of_another(folder):
    """What is published ranks as the run does with this discount; the test metrics are of the run as it was tested."""
    run = folder / "bert4rec0"
    assert main(["publish", str(run), "--out", str(folder / "plain")]) == 0
    assert main(["publish", str(run), "--out", str(folder / "other"), "--popularity-discount", "1.5"]) == 0
    plain, other = (read_bundle(folder / name) for name in ("plain", "other"))
    assert plain.manifest.metrics["NDCG@10"] >= 0
    assert other.manifest.metrics == {}
    shares = -1.5 * np.log((np.load(run / "trained.npy") + 1) / (np.load(run / "trained.npy") + 1).sum())
    for one, another in zip(plain.golden, other.golden, strict=True):
        assert one.items == another.items
        scores = dict(zip(one.expected_items, one.expected_scores, strict=True))
        for item, score in zip(another.expected_items, another.expected_scores, strict=True):
            if item in scores:
                lift = shares[plain.vocabulary.encode([item])[0] - 1]
                assert score == pytest.approx(scores[item] + lift, abs=1e-3)


@pytest.mark.parametrize(
    ("what", "value", "message"),
    [
        ("pop", "1", "--popularity-discount applies to runs of transformers only"),
        ("gru4rec0", "1", "gru4rec0 is a run of gru4rec: only transformers have the discount"),
        ("bert4rec0", "-1", "model.popularity_discount must be between 0 and 10"),
        ("bert4rec0", "nan", "model.popularity_discount must be between 0 and 10"),
    ],
)
def test_what_cannot_be_discounted_is_one_sentence(folder, capsys, what, value, message):
    """Baselines and other networks have no discount; a number that makes no sense is refused."""
    if what == "gru4rec0":
        fit(folder, "gru4rec")
    capsys.readouterr()
    path = what if what == "pop" else str(folder / what)
    assert main(["evaluate", path, "--data", str(folder / "log.csv"), "--popularity-discount", value]) == 2
    assert capsys.readouterr().err.endswith(f"{message}\n")


def test_a_run_without_its_counts_is_named(folder, capsys):
    """The file's name, as for every other file of a run."""
    run = Run.open(folder / "bert4rec0")
    content = (run.path / "trained.npy").read_bytes()
    (run.path / "trained.npy").write_bytes(content[:-8])
    assert main(["evaluate", str(run.path), "--data", str(folder / "log.csv"), "--popularity-discount", "1"]) == 2
    assert "trained.npy is not what a run writes" in capsys.readouterr().err
    (run.path / "trained.npy").write_bytes(content)

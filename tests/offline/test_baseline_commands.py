"""Every kind of model through the commands: baselines, networks of users, networks of histories."""

import json

import pytest

from model.contract.bundle import read_bundle
from model.contract.query import encode_question
from service.inference.model import load_model
from training.cli import main
from training.recipe import read_recipe
from training.recipe_models import BASELINES, MODELS

QUICK = [
    *("--set", "train.device=cpu", "--set", "train.epochs=3", "--set", "train.batch_size=8"),
    *("--set", "model.max_length=6", "--set", "model.width=8"),
]


@pytest.fixture
def fit(tmp_path, cycle_csv, capsys):
    """A function: recipe name -> the folder of its finished run on the ring's log, quick where there is training."""

    def run(name, *settings):
        quick = () if name in BASELINES else QUICK
        folder = tmp_path / name
        code = main(["fit", name, "--data", str(cycle_csv), "--out", str(folder), *quick, *settings])
        assert code == 0, capsys.readouterr().err
        capsys.readouterr()
        return folder

    return run


@pytest.mark.parametrize("name", ["rules", "session-knn", "fpmc", "gru4rec"])
def test_every_kind_is_fit_evaluated_and_listed(fit, cycle_csv, capsys, name):
    """A run says of itself what `evaluate` finds, and recommends to everyone in the log."""
    run = fit(name)
    results = json.loads((run / "results.json").read_text())
    assert {name, "pop", "markov", "rules"} == results["models"].keys() | {name}
    assert main(["evaluate", str(run), "--data", str(cycle_csv), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == results["models"][name]
    assert main(["recommend", str(run), "--data", str(cycle_csv), "--users", "all", "-k", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2 * 24


def test_a_counter_run_is_the_counter(fit, cycle_csv, capsys):
    """`evaluate NAME`, with settings, and a run of its recipe agree."""
    run = fit("item-knn", "--set", "model.neighbours=1")
    counted = json.loads((run / "results.json").read_text())["models"]["item-knn"]
    for neighbours in (1, 8):
        setting = f"model.neighbours={neighbours}"
        assert main(["evaluate", "item-knn", "--data", str(cycle_csv), "--json", "--set", setting]) == 0
        assert (json.loads(capsys.readouterr().out)["metrics"] == counted) is (neighbours == 1)
    assert main(["evaluate", "item-knn", "--data", str(cycle_csv), "--set", "train.epochs=2"]) == 2
    assert "this command reads only data.* and model.*" in capsys.readouterr().err


def test_kinds_are_compared(tmp_path, fit, cycle_csv, capsys):
    """Runs of a baseline and of networks stand side by side, by what they wrote and anew."""
    runs = [str(fit("item-knn")), str(fit("bpr-mf")), str(fit("fmc"))]
    out = ["--out", str(tmp_path / "c.png"), "--json"]
    assert main(["compare", *runs, *out]) == 0
    written = json.loads(capsys.readouterr().out)
    assert main(["compare", *runs, "session-knn", "--data", str(cycle_csv), *out]) == 0
    anew = json.loads(capsys.readouterr().out)
    assert {name: anew["models"][name] for name in runs} == {
        name: {**metrics, **{key: anew["models"][name][key] for key in anew["models"][name].keys() - metrics.keys()}}
        for name, metrics in written["models"].items()
    }
    assert "session-knn" in anew["models"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("bpr-mf", "ranks only for the users of its training log"), ("session-knn", "compares whole histories")],
)
def test_what_cannot_be_served_is_refused(tmp_path, fit, capsys, name, reason):
    """`publish` says why in one sentence and writes nothing."""
    run = fit(name)
    assert main(["publish", str(run), "--out", str(tmp_path / "bundles")]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not (tmp_path / "bundles").exists()


def test_only_its_own_log_will_do(tmp_path, fit, cycle_csv, capsys):
    """On another log a model of users has no users and a baseline is another baseline: both say so."""
    other = tmp_path / "other.csv"
    other.write_text(cycle_csv.read_text().replace("u00,", "nobody,"))
    for name in ("transrec", "markov"):
        run = fit(name)
        assert main(["evaluate", str(run), "--data", str(other)]) == 2
        assert "needs the log that it was trained on" in capsys.readouterr().err


def test_only_transformers_have_attention(fit, cycle_csv, capsys):
    """Others leave no picture of it, and the command says why."""
    run = fit("gru4rec")
    assert not (run / "attention.png").exists()
    assert main(["attention", str(run), "--data", str(cycle_csv)]) == 2
    assert "only transformers have attention weights" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pop", "recent-pop", "markov", "rules", "item-knn"])
def test_a_counter_is_published(tmp_path, fit, name):
    """What counts becomes a bundle of the whole log, its newest events too: after the ring's item 12 comes 1."""
    run = fit(name)
    assert main(["publish", str(run), "--out", str(tmp_path / "bundles")]) == 0
    bundle = read_bundle(tmp_path / "bundles")
    assert (bundle.manifest.name, bundle.manifest.layers) == (name, 1)
    assert sum(bundle.counts) == 168
    model = load_model(tmp_path / "bundles", provider="cpu", threads=1, max_batch=2)
    question = encode_question(model.vocabulary, history=["i11", "i12"], exclude=["i05"], candidates=None, k=12)
    [answer] = model.rank([question])
    assert len(answer.item_ids) == 11
    if name in ("markov", "rules"):
        assert answer.item_ids[0] == "i01"


def test_a_counter_of_before_is_fit_again(tmp_path, fit, capsys):
    """A run that kept no counts says so."""
    run = fit("markov")
    (run / "counted.npy").unlink()
    assert main(["publish", str(run), "--out", str(tmp_path / "bundles")]) == 2
    assert "fit it again" in capsys.readouterr().err


def test_a_recurrent_network_is_published(tmp_path, fit):
    """What ranks from a history becomes a bundle, parity and golden examples included."""
    run = fit("gru4rec")
    assert main(["publish", str(run), "--out", str(tmp_path / "bundles")]) == 0
    assert read_bundle(tmp_path / "bundles").manifest.name == "gru4rec"


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_recipe(name):
    """Each model can be fit by its name; the transformers' recipes are named for the data that they are for."""
    recipes = {
        "bert4rec": "bert4rec-ml-1m",
        "sasrec": "sasrec-ml-1m",
        "nova-bert": "nova",
        "nova-sasrec": "nova-beauty",
    }
    assert read_recipe(recipes.get(name, name)).model.name == name

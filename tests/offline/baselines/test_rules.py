"""Rules beside a network, from the log to a run: counted in training events, weighed by validation events."""

import json
import re
import shutil

import numpy as np
import pytest
import safetensors.torch
import torch

from model.nets.registry import make_network
from training.baselines.chains import RulesBaseline
from training.baselines.rules import count_rules, learn_rules, require_room
from training.baselines.rules_of_others import RulesOfOthers
from training.cli import main
from training.data.split import Questions
from training.errors import RecipeError
from training.evaluation.metrics import average
from training.evaluation.ranking import NetworkScorer, evaluate
from training.fit.count_weights import RULE_WEIGHTS, Weights, choose_weights, try_weights
from training.runs.networks import load_network
from training.runs.run import Run

RECIPE = """
[model]
max_length = 6
width = 8
layers = 1
rules_per_item = 4

[train]
device = "cpu"
epochs = 1
batch_size = 8
"""


def test_the_weightiest_followers_are_kept(make_histories):
    """Of four followers of item 1 the two weightiest stay, of equal ones the lower index; the baseline's weights."""
    rules = learn_rules(make_histories([[1, 3, 2], [1, 4, 5], [2, 5]]), 5, 2)
    root = np.sqrt(1 + 1 + 1 / 2 + 1 / 2)  # 1 -> 3 and 1 -> 4 at once, 1 -> 2 and 1 -> 5 after one more
    assert rules.followers.tolist() == [[0, 0], [3, 4], [5, 0], [2, 0], [5, 0], [0, 0], [0, 0]]
    expected = [[0, 0], [1 / root, 1 / root], [1, 0], [1, 0], [1, 0], [0, 0], [0, 0]]
    np.testing.assert_allclose(rules.weights, expected, rtol=1e-6)
    assert rules.strength == 0


def test_uncut_rules_are_the_baselines(make_histories):
    """Kept whole, they give each item the share that the baseline of the same name scores it by."""
    draw = np.random.default_rng(5)
    train = make_histories([draw.integers(1, 9, size=draw.integers(0, 12)).tolist() for _ in range(40)])
    asked = make_histories([draw.integers(1, 9, size=draw.integers(1, 9)).tolist() for _ in range(20)])
    item_ids, _ = asked.query_next(max_length=50, mask_index=9)
    shares = torch.expm1(learn_rules(train, 8, 99).lift(torch.from_numpy(item_ids)).double())[:, 1:-1]
    counted = RulesBaseline(train, 8).score(asked)
    torch.testing.assert_close(
        shares / shares.sum(1, keepdim=True), counted / counted.sum(1, keepdim=True), rtol=1e-3, atol=1e-5
    )


def test_strengths_are_tried_as_they_are_evaluated(make_histories):
    """Scoring each question once gives what an evaluation of the network with rules of that strength gives."""
    torch.manual_seed(3)
    draw = np.random.default_rng(5)
    train = make_histories([draw.permutation(30)[:9] + 1 for _ in range(40)])
    asked = make_histories([draw.permutation(30)[:size] + 1 for size in draw.integers(0, 9, size=60)])
    questions = Questions(asked, draw.integers(1, 31, size=60).astype(np.int32))
    network = make_network("sasrec", item_count=30, max_length=6, width=8, layers=1, heads=1)
    rules = learn_rules(train, 30, 7)
    others = RulesOfOthers(rules, count_rules(train, 30), train)
    tried = try_weights(NetworkScorer(network), questions, rules=others)
    assert tuple(tried) == tuple(Weights(weight) for weight in RULE_WEIGHTS)
    assert len(set(tried.values())) > 3
    assert tried[Weights()] == pytest.approx(average(evaluate(NetworkScorer(network), questions))["NDCG@10"])
    network.rules = rules
    for strength in RULE_WEIGHTS:
        rules.strength.fill_(strength)
        found = average(evaluate(NetworkScorer(network), questions))["NDCG@10"]
        assert tried[Weights(strength)] == pytest.approx(found)


def test_the_least_of_the_best_strengths_is_chosen():
    """Equal ones go to the network: what rules do not better they do not touch."""
    assert choose_weights({Weights(3): 0.5, Weights(): 0.4, Weights(1.2): 0.5, Weights(1.2, 0.1): 0.5}) == Weights(1.2)
    assert choose_weights({Weights(): 0.5, Weights(0.1): 0.5, Weights(0, 0.1): 0.5}) == Weights()


def test_more_rules_than_a_graph_can_hold_are_refused():
    """Before anything is trained, by the largest number that fits; a small catalogue never asks for too many."""
    require_room(1_000, 10**9)
    require_room(1_000_000, 134)
    require_room(10**9, None)
    with pytest.raises(RecipeError, match=r"model\.rules_per_item must be at most 134 for a log of 1,000,000 items"):
        require_room(1_000_000, 135)


def write_log(path, walks):
    """A CSV of walks, a user each."""
    rows = [
        f"u{user:02},i{item:02},{1_700_000_000 + step}"
        for user, walk in enumerate(walks)
        for step, item in enumerate(walk)
    ]
    path.write_text("user,item,timestamp\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def walks():
    """Two steps in three go on by one round a ring of 20 items, others by two."""
    draw = np.random.default_rng(8)
    return [(draw.integers(20) + np.cumsum(draw.choice([1, 1, 2], size=8))) % 20 + 1 for _ in range(40)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, walks):
    """A folder with a recipe, a log and its finished run."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(RECIPE)
    log = write_log(folder / "log.csv", walks)
    assert main(["fit", str(folder / "small.toml"), "--data", log, "--out", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def copy(tmp_path, finished):
    """A copy of that folder to work in."""
    return shutil.copytree(finished, tmp_path / "copy")


def fit(folder, log, out):
    """Fit, or go on with, a run in a folder."""
    return main(
        ["fit", str(folder / "small.toml"), "--data", str(folder / log), "--out", str(folder / out), "--resume"]
    )


def test_a_run_keeps_its_rules_and_uses_them(finished, capsys):
    """Evaluation finds what fit wrote down for the network with rules, beside the network alone."""
    results = json.loads((finished / "run" / "results.json").read_text())
    assert list(results["models"]) == ["bert4rec-rules", "bert4rec", "pop", "markov", "rules"]
    tried = {float(strength): value for strength, value in results["rules"]["NDCG@10"].items()}
    best = max(sorted(tried), key=lambda strength: tried[strength])
    assert results["rules"]["strength"] == best > 0  # one epoch learns less than is counted
    epoch = json.loads((finished / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert tried[0.0] == pytest.approx(epoch["validation"]["NDCG@10"])
    assert main(["evaluate", str(finished / "run"), "--data", str(finished / "log.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == results["models"]["bert4rec-rules"]
    assert results["models"]["bert4rec-rules"]["NDCG@10"] != results["models"]["bert4rec"]["NDCG@10"]
    assert results["served"].keys() == results["models"]["bert4rec-rules"].keys()
    assert fit(finished, "log.csv", "run") == 0
    shown = capsys.readouterr().out
    assert re.search(r"^bert4rec-rules +[01]\.\d{4} ", shown, flags=re.MULTILINE)
    assert f"\nRule weight {results['rules']['strength']:g}: validation NDCG@10 {max(tried.values()):.4f}, " in shown


def test_no_test_event_is_counted_or_weighed(copy, walks):
    """With another last event of every user and nothing else changed, rules and strength are the same bytes."""
    others = [[*walk[:-1], (walk[-1] + 6) % 20 + 1] for walk in walks]
    write_log(copy / "other.csv", others)
    assert fit(copy, "other.csv", "other") == 0
    for name in ("kept.safetensors", "rules.safetensors"):
        assert (copy / "other" / name).read_bytes() == (copy / "run" / name).read_bytes()
    one, other = (json.loads((copy / run / "results.json").read_text()) for run in ("run", "other"))
    assert one["rules"] == other["rules"]
    assert one["models"]["bert4rec-rules"] != other["models"]["bert4rec-rules"]


def test_a_run_stopped_before_its_rules_goes_on_to_the_same(copy, capsys):
    """Without results rules are counted again; until then nobody takes the network for the whole."""
    whole = (copy / "run" / "rules.safetensors").read_bytes()
    for name in ("rules.safetensors", "results.json"):
        (copy / "run" / name).unlink()
    assert main(["evaluate", str(copy / "run"), "--data", str(copy / "log.csv")]) == 2
    assert "has no rules yet: they are counted when training ends" in capsys.readouterr().err
    assert fit(copy, "log.csv", "run") == 0
    assert (copy / "run" / "rules.safetensors").read_bytes() == whole


def test_results_of_before_are_read_and_paired_with_their_like_alone(copy, capsys):
    """Results that name no evaluation are shown and published as ever, and are no pair of ones with rules of others."""
    shutil.copytree(copy / "run", copy / "older")
    path = copy / "older" / "results.json"
    results = json.loads(path.read_text())
    newer = ("evaluation", "seen_items", "repeated_targets", "held_out_users", "targets")
    path.write_text(json.dumps({key: value for key, value in results.items() if key not in newer}))
    assert fit(copy, "log.csv", "older") == 0
    assert "bert4rec-rules" in capsys.readouterr().out
    compare = ["compare", str(copy / "run"), str(copy / "older"), "--out", str(copy / "picture.png")]
    assert main(compare) == 2
    assert "give --data FILE to test them again" in capsys.readouterr().err
    assert main([*compare, "--data", str(copy / "log.csv")]) == 0
    assert "chance can explain all of it" in capsys.readouterr().out
    path.write_text(json.dumps({**results, "targets": {"share": "some"}}))
    assert main(compare) == 2
    assert "results.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("damage", "code", "message"),
    [
        (lambda it: it["followers"].__setitem__((3, 0), 21), 2, "is not what a run writes: a rule leads to no item"),
        (lambda it: it["followers"].__setitem__((3, 0), -1), 2, "is not what a run writes: a rule leads to no item"),
        (lambda it: it["weights"].__setitem__((3, 0), -0.5), 2, "a weight is not a number of at least 0"),
        (lambda it: it["strength"].fill_(float("nan")), 2, "a weight is not a number of at least 0"),
        (lambda it: it.update(weights=it["weights"][:-1]), 1, "is not a checkpoint of this run"),
        (lambda it: it.pop("strength"), 1, "is not a checkpoint of this run"),
    ],
    ids=["beyond the items", "below them", "negative", "no number", "another catalogue", "incomplete"],
)
def test_damaged_rules_are_refused(copy, capsys, damage, code, message):
    """Rules that nobody counted are one sentence, and nothing is published with them."""
    path = copy / "run" / "rules.safetensors"
    tensors = safetensors.torch.load_file(path)
    damage(tensors)
    safetensors.torch.save_file(tensors, path)
    assert main(["publish", str(copy / "run"), "--out", str(copy / "bundles")]) == code
    shown = capsys.readouterr().err
    assert message in shown
    assert "rules.safetensors" in shown
    assert shown.count("\n") == 1
    assert not (copy / "bundles").exists()


def test_rules_without_strength_are_not_served(copy):
    """Where validation found no use for rules, the run is the network alone."""
    path = copy / "run" / "rules.safetensors"
    tensors = safetensors.torch.load_file(path)
    assert load_network(Run.open(copy / "run")).rules is not None
    safetensors.torch.save_file({**tensors, "strength": torch.zeros(())}, path)
    assert load_network(Run.open(copy / "run")).rules is None

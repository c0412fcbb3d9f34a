"""What is popular of late beside a network: what is counted, how it is weighed, and that it is served."""

import json

import numpy as np
import pytest
import torch

from model.nets.registry import make_network
from training.baselines.popular import count_recent
from training.baselines.rules import count_rules, learn_rules
from training.baselines.rules_of_others import RulesOfOthers
from training.cli import main
from training.data.split import Questions, cut_log
from training.errors import DataError, RecipeError
from training.evaluation.metrics import average
from training.evaluation.ranking import NetworkScorer, evaluate
from training.fit.count_weights import RECENCY_WEIGHTS, RULE_WEIGHTS, Weights, read_weights, try_weights
from training.fit.fit import COMPARED_BY_TIME
from training.logs.reader import read_log
from training.recipe import DataRecipe, make_recipe
from training.runs.networks import load_network
from training.runs.recency import Recency, count_for
from training.runs.run import Run

DAY_S, DAYS, A_DAY, ITEMS = 86_400, 40, 60, 90
BEGIN_S = 1_700_000_000
SETTINGS = (
    *("model.max_length=8", "model.width=8", "model.layers=1", "train.epochs=1", "train.batch_size=64"),
    *("train.device=cpu", "data.split=time", "model.recent_days=2", "model.rules_per_item=null"),
)


def write_fashions(path, *, seed=1):
    """Six items of 90 make nine events of ten for four days, then the next six; validation and test begin midway."""
    draw = np.random.default_rng(seed)
    lines = ["user,item,timestamp"]
    for day in range(DAYS):
        for event in range(A_DAY):
            in_fashion = draw.random() < 0.9
            item = ((day + 2) // 4 * 6 + draw.integers(6)) % ITEMS if in_fashion else draw.integers(ITEMS)
            lines.append(f"u{draw.integers(99):02},i{item:02},{BEGIN_S + day * DAY_S + event * 60}")
    path.write_text("\n".join(lines) + "\n")
    return path


def read_times(path):
    """The log in a file, and its times."""
    log = read_log(path, DataRecipe())
    assert log.timestamps_ms is not None
    return log, log.timestamps_ms


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A log of fashions, and the folder of a run on it."""
    folder = tmp_path_factory.mktemp("recency")
    write_fashions(folder / "log.csv")
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    asked = ["fit", "bert4rec-small", "--data", str(folder / "log.csv"), "--out", str(folder / "run"), *words]
    assert main(asked) == 0
    return folder


def test_the_last_days_are_counted_and_no_more(make_histories):
    """What is just as old as the days are long is out; items that occur twice count twice."""
    histories = make_histories([[1, 2, 2], [3, 1]])
    day_ms = 1000 * DAY_S
    times = np.array([0, day_ms, 3 * day_ms, 2 * day_ms, 3 * day_ms - 1])
    assert count_recent(histories, 4, times, 1).tolist() == [1, 1, 0, 0]
    assert count_recent(histories, 4, times, 1.0001).tolist() == [1, 1, 1, 0]
    assert count_recent(histories, 4, times, 99).tolist() == [2, 2, 1, 0]
    assert count_recent(histories.select(slice(0, 1)), 4, times, 99).tolist() == [1, 2, 0, 0]


def test_fashions_are_followed(fitted, capsys):
    """Validation gives recency a weight, it beats the network alone clearly, and `evaluate` finds what fit wrote."""
    results = json.loads((fitted / "run" / "results.json").read_text())
    assert list(results["models"]) == ["bert4rec-recent", "bert4rec", *COMPARED_BY_TIME]
    tried = {float(weight): value for weight, value in results["recency"]["NDCG@10"].items()}
    assert tuple(tried) == RECENCY_WEIGHTS
    assert results["recency"]["weight"] == max(sorted(tried), key=lambda weight: tried[weight]) > 0
    with_it, alone = (results["models"][name]["NDCG@10"] for name in ("bert4rec-recent", "bert4rec"))
    assert with_it["low"] > alone["high"]
    capsys.readouterr()
    command = ["evaluate", str(fitted / "run"), "--data", str(fitted / "log.csv"), "--protocol", "time", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == results["models"]["bert4rec-recent"]


def test_test_questions_know_what_came_before_them_and_nothing_later(fitted):
    """All that is counted for the test is older than every test event, and validation's own events are among it."""
    run = Run.open(fitted / "run")
    log, times_ms = read_times(fitted / "log.csv")
    split = cut_log(log, "time", held_out_users=None, test_share=run.recipe.data.test_share)
    counted, trained = (times_ms[part.find_positions()[1]] for part in (split.counted, split.train))
    validated, tested = split.validation.histories.asked_ms, split.test.histories.asked_ms
    assert validated is not None
    assert tested is not None
    assert tested.min() > counted.max() >= validated.max() > validated.min() > trained.max()
    assert len(counted) + len(trained) > len(log.items)
    counts, of_all = (count_for(run.recipe, log, part) for part in (split.counted, log.histories))
    assert counts is not None
    assert of_all is not None
    assert counts.sum() == (counted > counted.max() - 2 * 1000 * DAY_S).sum()
    assert not np.array_equal(counts, of_all)


def test_no_test_event_has_a_say_in_the_weight(fitted, tmp_path):
    """With other items in all test events, the weight and what was tried for it are the same."""
    rows = (fitted / "log.csv").read_text().splitlines()
    times_ms = read_times(fitted / "log.csv")[1]
    begin_s = int(np.sort(times_ms)[int(len(times_ms) * 0.9)]) // 1000
    others = [
        row if int(row.split(",")[2]) < begin_s else f"{row[:4]}i{(int(row[5:7]) + 7) % ITEMS:02}{row[7:]}"
        for row in rows[1:]
    ]
    (tmp_path / "log.csv").write_text("\n".join([rows[0], *others]) + "\n")
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    asked = ["fit", "bert4rec-small", "--data", str(tmp_path / "log.csv"), "--out", str(tmp_path / "run"), *words]
    assert main(asked) == 0
    one, other = (json.loads((run / "run" / "results.json").read_text()) for run in (fitted, tmp_path))
    assert one["recency"] == other["recency"]
    assert one["models"] != other["models"]


def test_what_is_published_knows_the_last_days_of_the_whole_log(fitted):
    """It scores as the network alone and the weighed logarithms of the newest counts: an ordinary bias."""
    run = Run.open(fitted / "run")
    log, times_ms = read_times(fitted / "log.csv")
    weight = json.loads((run.path / "results.json").read_text())["recency"]["weight"]
    alone, published = load_network(run, alone=True), load_network(run)
    recent = np.log1p(count_recent(log.histories, len(log.vocabulary), times_ms, 2))
    added = (published.item_bias - alone.item_bias).detach().numpy()
    np.testing.assert_allclose(added, weight * recent, atol=1e-5)
    assert published.rows.equal(alone.rows)


def test_both_weights_are_tried_as_they_are_evaluated(make_histories):
    """Scoring each question once gives what an evaluation of the network with such rules and recency gives."""
    torch.manual_seed(3)
    draw = np.random.default_rng(5)
    train = make_histories([draw.permutation(30)[:9] + 1 for _ in range(40)])
    asked = make_histories([draw.permutation(30)[:size] + 1 for size in draw.integers(0, 9, size=60)])
    questions = Questions(asked, draw.integers(1, 31, size=60).astype(np.int32))
    network = make_network("sasrec", item_count=30, max_length=6, width=8, layers=1, heads=1)
    rules, recency = learn_rules(train, 30, 7), Recency(draw.integers(0, 50, size=30))
    others = RulesOfOthers(rules, count_rules(train, 30), train)
    tried = try_weights(NetworkScorer(network), questions, rules=others, recent=recency.lift())
    assert len(tried) == len(RULE_WEIGHTS) * len(RECENCY_WEIGHTS)
    network.rules = rules
    for weights in (Weights(), Weights(0.5, 0.0), Weights(0.0, 2.0), Weights(3.0, 1.0), Weights(20.0, 10.0)):
        rules.strength.fill_(weights.rules)
        recency.weight.fill_(weights.recency)
        network.item_bias = recency()
        found = average(evaluate(NetworkScorer(network), questions))["NDCG@10"]
        assert tried[weights] == pytest.approx(found)


def test_a_refit_takes_the_weights_that_were_found():
    """What results.json names, 0 where nothing was counted."""
    assert read_weights({}) == Weights()
    assert read_weights({"rules": {"strength": 2.0}, "recency": {"weight": 0.4}}) == Weights(2.0, 0.4)


def test_recency_that_cannot_be_is_refused(tmp_path):
    """No time, a model that is not served, and a log without times, before anything is trained."""
    with pytest.raises(RecipeError, match=r"model\.recent_days must be above 0"):
        make_recipe({"model": {"name": "gru4rec", "recent_days": 0.0}})
    with pytest.raises(RecipeError, match=r"model\.recent_days does not apply to bpr-mf"):
        make_recipe({"model": {"name": "bpr-mf", "recent_days": 7.0}})
    assert make_recipe({"model": {"name": "fmc", "recent_days": 7.0}}).name == "fmc-recent"
    timeless = write_fashions(tmp_path / "log.csv").read_text().replace("timestamp", "place")
    (tmp_path / "log.csv").write_text(timeless)
    recipe = make_recipe({"data": {"timestamp_column": ""}, "model": {"recent_days": 7.0}})
    log = read_log(tmp_path / "log.csv", recipe.data)
    with pytest.raises(DataError, match=r"model\.recent_days needs a log with times"):
        count_for(recipe, log, log.histories)
    for key in ("recent_days=7", "relative_time=true"):
        words = ["--set", f"model.{key}", "--set", "data.timestamp_column=", "--out", str(tmp_path / "run")]
        assert main(["fit", "sasrec-original", "--data", str(tmp_path / "log.csv"), *words]) != 0
        assert not (tmp_path / "run" / "config.json").exists()

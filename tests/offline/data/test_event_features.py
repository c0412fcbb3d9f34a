"""Behaviour side information: from a log's columns to the network's inputs, the same for trainer and server."""

import numpy as np
import pytest

from model.contract.bundle import read_bundle
from model.contract.query import INPUTS, Question, stack_questions
from training.cli import main
from training.data.event_features import EventFeatures, learn_event_features
from training.data.histories import Histories
from training.data.split import leave_one_out
from training.errors import DataError, RecipeError
from training.logs.reader import read_log
from training.recipe import DataRecipe, make_recipe
from training.runs.networks import load_network
from training.runs.run import Run

TOLD = DataRecipe(event_features=("type", "value", "gap"))
CSV = """user,item,timestamp,type,value
u,a,1000,view,
u,b,1010,buy,2
u,c,1110,view,4
v,a,2000,view,1.5
v,c,2001,rate,5
v,b,2500,view,3
"""


@pytest.fixture
def path(tmp_path):
    """Two users, three types, a value that is missing."""
    path = tmp_path / "log.csv"
    path.write_text(CSV)
    return path


def make_told(**model):
    """A recipe that tells its network all of it."""
    return make_recipe({"data": {"event_features": ["type", "value", "gap"]}, "model": {"name": "nova-bert", **model}})


def test_types_and_values_are_read_where_asked_for(path):
    """In the order of the items; other recipes read neither, and their log is another one."""
    log = read_log(path, TOLD)
    assert log.types is not None
    assert log.types.tolist() == ["view", "buy", "view", "view", "rate", "view"]
    np.testing.assert_array_equal(log.values, np.array([np.nan, 2, 4, 1.5, 5, 3], np.float32))
    plain = read_log(path, DataRecipe())
    assert (plain.types, plain.values) == (None, None)
    assert plain.fingerprint != log.fingerprint


def test_edges_and_types_are_those_of_training(path):
    """Each user's first event trains: views alone, one value, and no gap at all."""
    log = read_log(path, TOLD)
    assert learn_event_features(make_told(), log, leave_one_out(log).train) == EventFeatures(
        {"types": (), "values": (), "times": ()}, ("view",)
    )
    whole = learn_event_features(make_told(), log, log.histories)
    assert whole == EventFeatures(
        {"types": (), "values": (1.75, 2.5, 3.5, 4.5), "times": (5_500.0, 55_000.0, 299_500.0)}, ("buy", "rate", "view")
    )
    assert EventFeatures.from_json(whole.to_json()) == whole
    types, values, times = whole.encode(log)
    assert types.tolist() == [3, 1, 3, 3, 2, 3]
    assert values is log.values
    assert times.tolist()[:3] == [1_000_000, 1_010_000, 1_110_000]
    assert EventFeatures({"types": ()}, ("view",)).encode(log)[0].tolist() == [1, 0, 1, 1, 0, 1]


def test_nothing_is_learned_for_other_recipes(path):
    """A network that is told nothing has no behaviour."""
    log = read_log(path, DataRecipe())
    assert learn_event_features(make_recipe({}), log, log.histories) is None
    with pytest.raises(RecipeError, match=r"data\.event_features must be empty for bert4rec, which reads items only"):
        learn_event_features(make_recipe({"data": {"event_features": ["type"]}}), log, log.histories)


def test_trainer_and_server_ask_alike():
    """What flat arrays give for a question is what the contract makes of the same history."""
    items, times = np.arange(1, 8, dtype=np.int32), np.arange(100, 107)
    histories = Histories(items, np.array([0, 2, 5]), np.array([2, 5, 5]))
    questions = [
        Question(row, items[:0], None, 1, {"times": times[start:end]})
        for row, start, end in zip(histories, histories.starts, histories.ends, strict=True)
    ]
    feed = stack_questions(questions, max_length=3, mask_index=9, inputs=(*INPUTS, "times"))
    asked = histories.query_next(max_length=3, mask_index=9)
    np.testing.assert_array_equal(asked.item_ids, feed["item_ids"])
    np.testing.assert_array_equal(histories.query_side_input(times, max_length=3), feed["times"])
    empty = histories.select(np.array([2]))
    assert empty.query_side_input(times, max_length=3).tolist() == [[0]]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"data": {"event_features": ["mood"]}}, r"data\.event_features must be a list of type, value, gap"),
        ({"data": {"event_features": ["type", "type"]}}, "each once"),
        ({"data": {"event_features": ["gap"], "timestamp_column": ""}}, "without gap where the log has no times"),
        ({"model": {"name": "nova-bert", "event_dropout": 2.0}}, r"model\.event_dropout must be between"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(document, words):
    """What does not exist or cannot be known."""
    with pytest.raises(RecipeError, match=words):
        make_recipe(document)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("log.csv", CSV.replace("rate", "a rating"), r"line 6: 'type' is no type: 1 to 256 printable ASCII"),
        ("log.csv", CSV.replace(",view,\n", ",,\n"), r"line 2: 'type' is no type"),
        ("log.csv", CSV.replace("type", "sort"), r"has no column for type.*--columns type=COLUMN"),
        ("log.txt", "u a\nu b\n", r"data\.event_features needs a file with columns"),
    ],
)
def test_logs_that_do_not_tell_are_refused(tmp_path, name, content, words):
    """The line, the column and the key are named."""
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        read_log(path, TOLD)


def test_a_run_that_is_told_of_events_is_published_with_its_types(tmp_path, cycles):
    """The manifest names the inputs, the bundle holds the types, and evaluate tells the network what fit told it."""
    log, out, bundles = tmp_path / "log.csv", tmp_path / "run", tmp_path / "bundles"
    rows = [
        f"u{user:02},i{item:02},{1_700_000_000 + 60 * step**2},{'buy' if item % 3 else 'view'},{item % 5}"
        for user, walk in enumerate(cycles)
        for step, item in enumerate(walk)
    ]
    log.write_text("user,item,timestamp,type,value\n" + "\n".join(rows) + "\n")
    small = ["model.max_length=6", "model.width=16", "model.layers=1", "train.epochs=2", "train.batch_size=8"]
    settings = ["model.name=nova-bert", 'data.event_features=["gap","type","value"]', "train.device=cpu", *small]
    fit = ["fit", "bert4rec-small", "--data", str(log), "--out", str(out)]
    assert main([*fit, *(word for setting in settings for word in ("--set", setting))]) == 0
    assert main(["evaluate", str(out), "--data", str(log)]) == 0
    assert main(["recommend", str(out), "--data", str(log), "--users", "u01"]) == 0
    assert main(["publish", str(out), "--out", str(bundles)]) == 0
    bundle = read_bundle(bundles)
    assert bundle.manifest.inputs == (*INPUTS, "times", "types", "values")
    assert bundle.event_types == ("buy", "view")
    (out / "behaviour.json").write_text('{"edges": {"moods": []}, "event_types": []}')
    with pytest.raises(Exception, match=r"behaviour\.json is not what a run writes: an input that no network reads"):
        load_network(Run.open(out))

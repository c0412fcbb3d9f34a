"""The times of stored events and that of the request reach a network that was trained to read them."""

import time

import httpx
import pytest
import torch

from model.contract.bundle import read_bundle
from model.contract.event_inputs import Events, encode_events
from model.contract.query import INPUTS, Question, stack_questions
from model.nets.network import SequenceNetwork
from training.cli import main
from training.runs.networks import load_network

SETTINGS = (
    *("model.relative_time=true", "model.max_length=8", "model.width=16", "model.layers=1", "train.epochs=1"),
    *("train.batch_size=8", "train.device=cpu", "train.validation_users=20"),
)
DAY_MS = 86_400_000


@pytest.fixture
def run(tmp_path, redraw_weights):
    """A run whose weights are then drawn anew, so large that answers differ by times."""
    rows = [f"u{user},i{(user + step) % 12:02},{1_700_000_000 + step**5}" for user in range(24) for step in range(6)]
    log = tmp_path / "log.csv"
    log.write_text("user,item,timestamp\n" + "\n".join(rows) + "\n")
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    assert main(["fit", "sasrec-original", "--data", str(log), "--out", str(tmp_path / "run"), *settings]) == 0
    return redraw_weights(tmp_path / "run")


def rank(run, items, times_ms, asked_ms):
    """PyTorch's scores by item id; 0 is a time that nobody knows."""
    network, vocabulary = load_network(run), run.vocabulary
    assert isinstance(network, SequenceNetwork)
    history = vocabulary.encode(items)
    told = encode_events(Events([""] * len(items), [None] * len(items), times_ms), ())
    question = Question(history, history[:0], None, 1, told, asked_ms=asked_ms)
    feed = stack_questions([question], max_length=8, mask_index=vocabulary.mask_index, inputs=network.event_inputs)
    with torch.inference_mode():
        scores = network(*(torch.from_numpy(feed[name]) for name in ("item_ids", "lengths", "times")))
    return dict(zip(vocabulary.item_ids, scores[0].tolist(), strict=True))


def test_stored_times_and_the_time_of_the_request_are_what_the_network_reads(run, tmp_path, start_service):
    """Two users of the same items at other times get PyTorch's scores, each their own; bare items are without times."""
    bundles = tmp_path / "bundles"
    assert main(["publish", str(run.path), "--out", str(bundles)]) == 0
    assert read_bundle(bundles).manifest.inputs == (*INPUTS, "times")
    _, url = start_service(bundles)
    items, now_ms = ["i03", "i04", "i05"], time.time_ns() // 1_000_000
    told = {"today": [now_ms - 3 * DAY_MS, now_ms - 7_200_000, now_ms - 3_600_000]}
    told["long-ago"] = [came_ms - 300 * DAY_MS for came_ms in told["today"]]
    answers = {}
    for user, times_ms in told.items():
        body = [
            {"user_id": user, "item_id": item, "type": "view", "timestamp": came_ms}
            for item, came_ms in zip(items, times_ms, strict=True)
        ]
        assert httpx.post(f"{url}/events", json={"events": body}).json()["accepted"] == 3
        answer = httpx.post(f"{url}/recommend", json={"user_id": user, "k": 12, "exclude_seen": False}).json()
        assert answer["source"] == "model"
        answers[user] = {item["item_id"]: item["score"] for item in answer["items"]}
        # it was asked some seconds after now_ms: a thousandth of an hour moves no score by more
        assert answers[user] == pytest.approx(rank(run, items, times_ms, now_ms), abs=2e-2)
    assert max(abs(answers["today"][item] - answers["long-ago"][item]) for item in items) > 0.2
    answer = httpx.post(f"{url}/recommend", json={"items": items, "k": 12, "exclude_seen": False}).json()
    bare = {item["item_id"]: item["score"] for item in answer["items"]}
    assert bare == pytest.approx(rank(run, items, [0] * 3, now_ms), abs=1e-3)

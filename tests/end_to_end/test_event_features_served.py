"""What the service knows of events reaches a network that was trained to read it, and the answers are PyTorch's."""

import httpx
import pytest
import torch

from model.contract.event_inputs import Events, encode_events
from model.contract.query import Question, stack_questions
from model.nets.network import SequenceNetwork
from training.cli import main
from training.runs.networks import load_network

TYPES, NOW_MS = ("view", "click", "cart", "purchase"), 1_763_719_498_123
SETTINGS = (
    "model.rules_per_item=null",
    *("model.name=nova-bert", 'data.event_features=["type","value","gap"]', "model.event_dropout=0.2"),
    *("model.max_length=8", "model.width=16", "model.layers=1", "train.epochs=1", "train.batch_size=8"),
    "train.device=cpu",
)


@pytest.fixture
def run(tmp_path, redraw_weights):
    """A run whose weights are then drawn anew, so large that answers differ by what is known of events."""
    rows = [
        f"u{user},i{(user + step) % 12:02},{1_700_000_000 + step**3},{TYPES[(user * step) % 4]},{step % 3}"
        for user in range(24)
        for step in range(6)
    ]
    log = tmp_path / "log.csv"
    log.write_text("user,item,timestamp,type,value\n" + "\n".join(rows) + "\n")
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    assert main(["fit", "bert4rec-small", "--data", str(log), "--out", str(tmp_path / "run"), *settings]) == 0
    return redraw_weights(tmp_path / "run")


def rank(run, items, events):
    """PyTorch's scores by item id."""
    network, vocabulary = load_network(run), run.vocabulary
    assert isinstance(network, SequenceNetwork)
    history = vocabulary.encode(items)
    told = None if events is None else encode_events(events, run.event_features.event_types)
    feed = stack_questions(
        [Question(history, history[:0], None, 1, told)],
        max_length=8,
        mask_index=vocabulary.mask_index,
        inputs=network.event_inputs,
    )
    with torch.inference_mode():
        scores = network(*(torch.from_numpy(feed[name]) for name in ("item_ids", "lengths", *network.event_inputs)))
    return dict(zip(vocabulary.item_ids, scores[0].tolist(), strict=True))


def test_stored_events_are_what_the_network_reads(run, tmp_path, start_service):
    """Users of one history of items and other types get PyTorch's scores, each their own; a bare list has its own."""
    bundles = tmp_path / "bundles"
    assert main(["publish", str(run.path), "--out", str(bundles)]) == 0
    _, url = start_service(bundles)
    items = ["i03", "unknown-to-the-model", "i04", "i05"]
    told = {
        "viewer": Events(["view"] * 4, [1.0, 0.0, None, 2.0], [NOW_MS + 1000 * step for step in range(4)]),
        "clicker": Events(["view", "view", "cart", "click"], [2.0] * 4, [NOW_MS + 5**step for step in range(4)]),
    }
    for user, events in told.items():
        body = [
            {"user_id": user, "item_id": item, "type": kind, "value": value, "timestamp": time_ms}
            for item, kind, value, time_ms in zip(items, *events, strict=True)
        ]
        assert httpx.post(f"{url}/events", json={"events": body}).json()["accepted"] == 4
    known = [0, 2, 3]
    answers = {}
    for user, events in told.items():
        asked = {"user_id": user, "k": 12, "exclude_seen": False}
        answer = httpx.post(f"{url}/recommend", json=asked).json()
        assert answer["source"] == "model"
        answers[user] = {item["item_id"]: item["score"] for item in answer["items"]}
        modelled = Events(*([column[i] for i in known] for column in events))  # type: ignore[arg-type] # columns differ
        wanted = rank(run, [items[place] for place in known], modelled)
        assert answers[user] == pytest.approx(wanted, abs=1e-3)
    assert max(abs(answers["viewer"][item] - answers["clicker"][item]) for item in answers["viewer"]) > 0.01
    asked = {"items": items, "k": 12, "exclude_seen": False}
    answer = httpx.post(f"{url}/recommend", json=asked).json()
    bare = {item["item_id"]: item["score"] for item in answer["items"]}
    assert answer["source"] == "model"
    assert bare == pytest.approx(rank(run, ["i03", "i04", "i05"], None), abs=1e-3)

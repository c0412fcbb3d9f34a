"""`explain`: every weight can be checked by two requests, and no answer is late or fails for want of its reasons."""

import asyncio
import os
import threading
import time

import numpy as np
import pytest

from model.contract.bundle import NETWORK
from service.errors import EngineUnavailable
from service.inference.model import LiveModel

ANSWERS = int(os.environ.get("NEXTITEM_EXPLAINED_ANSWERS", "100"))
"""1,000 prove more, and take a minute."""


@pytest.fixture(scope="module")
def catalogue(client):
    """The items that the model knows."""
    return client.service.model.vocabulary.item_ids


def score_items(client, history, named):
    """The scores of named items after a history, by plain requests."""
    answer = client.recommend(items=history, candidate_item_ids=named, exclude_seen=False, k=len(named))
    assert answer["source"] == "model"
    assert "explained" not in answer
    return {item["item_id"]: item["score"] for item in answer["items"]}


def test_every_weight_is_the_difference_of_two_requests(client, catalogue, user):
    """Of items given, of a stored history, and of both, with unknown items among them; and no weightier one is left."""
    assert ANSWERS >= 100
    draw = np.random.default_rng(5)
    weights = 0
    for number in range(ANSWERS):
        history = [str(item) for item in draw.choice([*catalogue, "unknown"], size=draw.integers(2, 14))]
        known = list(dict.fromkeys(item for item in reversed(history) if item != "unknown"))
        if len(known) < 2:
            continue
        stored = history[: number % 3]
        if stored:
            events = [{"user_id": f"{user}-{number}", "item_id": item} for item in stored]
            client.send(*({**event, "timestamp": 10**12 + at} for at, event in enumerate(events)))
        asked = {"items": history[len(stored) :], "user_id": f"{user}-{number}" if stored else None}
        answer = client.recommend(**asked, k=int(draw.integers(1, 21)), exclude_seen=bool(number % 2), explain=True)
        assert (answer["source"], answer["explained"]) == ("model", len(known))
        named = [item["item_id"] for item in answer["items"]]
        full = score_items(client, history, named)
        without = {one: score_items(client, [item for item in history if item != one], named) for one in known}
        for item in answer["items"]:
            name, reasons = item["item_id"], {reason["item_id"]: reason["weight"] for reason in item["reasons"]}
            differences = {one: full[name] - scores[name] for one, scores in without.items()}
            assert len(reasons) == len(item["reasons"]) <= 3
            assert reasons == pytest.approx({one: differences[one] for one in reasons}, abs=1e-4)
            assert all(weight > 0 for weight in reasons.values())
            assert list(reasons.values()) == sorted(reasons.values(), reverse=True)
            least = min(reasons.values()) if len(reasons) == 3 else 1e-4
            assert max((differences[one] for one in known if one not in reasons), default=0) <= least + 1e-4
            weights += len(reasons)
    assert weights > ANSWERS


def test_an_explained_answer_is_the_plain_one(client):
    """But for its reasons and its id: items, scores, order and everything else."""
    asked = {"items": ["i01", "i02", "nobody"], "k": 5}
    plain, explained = client.recommend(**asked), client.recommend(**asked, explain=True)
    assert explained.pop("explained") == 2
    assert all(len(item.pop("reasons")) <= 3 for item in explained["items"])
    for answer in (plain, explained):
        del answer["recommendation_id"], answer["took_ms"]
    assert explained == plain
    assert "explained" not in client.recommend(**asked, explain=False)


@pytest.mark.parametrize("asked", [{"items": []}, {"items": ["unknown"]}])
def test_popular_items_have_no_reasons(client, asked):
    """They owe nothing to a history."""
    answer = client.recommend(**asked, explain=True, k=3)
    assert (answer["source"], answer["explained"]) == ("popular", 0)
    assert [item["reasons"] for item in answer["items"]] == [[], [], []]


def test_an_empty_answer_is_explained_by_nothing(client):
    """The model ranked nothing."""
    answer = client.recommend(items=["i01"], candidate_item_ids=["unknown"], explain=True)
    assert (answer["source"], answer["items"], answer["explained"]) == ("model", [], 0)


def test_requests_of_a_batch_are_not_explained(client):
    """They are refused by name, not answered without."""
    entry = {"items": ["i01"], "timeout_ms": 2000}
    response = client.post("/recommend/batch", {"requests": [entry, {**entry, "explain": True}]})
    assert response.status_code == 422
    assert [(error["pointer"], error["code"]) for error in response.json()["errors"]] == [
        ("/requests/1/explain", "explain_batch")
    ]
    response = client.post("/recommend/batch", {"requests": [{**entry, "explain": False}]})
    assert "explained" not in response.json()["responses"][0]


def test_a_bundle_of_before_answers_without_reasons(make_client, broken_bundle, bundle_path):
    """Null says that they are unknown; candidates are ranked as ever."""
    [network] = [path.read_bytes() for path in bundle_path.glob(f"*/{NETWORK}")]
    client = make_client(bundle=broken_bundle(NETWORK, network.replace(b"candidate_scores", b"candidate_unused")))
    answer = client.recommend(items=["i01", "i02"], explain=True, k=2)
    assert (answer["source"], answer["explained"]) == ("model", None)
    assert [item["reasons"] for item in answer["items"]] == [None, None]
    named = client.recommend(items=["i01"], candidate_item_ids=["i05", "i03"], exclude_seen=False)
    assert {item["item_id"] for item in named["items"]} == {"i03", "i05"}
    assert client.counts()['nextitem_explained_total{result="unsupported"}'] == 1


class Stall:
    """Explaining does not come back until it is released; it counts how many are under way."""

    def __init__(self, monkeypatch):
        self.begun, self.released = threading.Event(), threading.Event()
        self.under_way = self.most = self.runs = 0
        explain = LiveModel.explain

        def explain_slowly(model, question, answer):
            self.runs += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.begun.set()
            self.released.wait(30)
            try:
                return explain(model, question, answer)
            finally:
                self.under_way -= 1

        monkeypatch.setattr(LiveModel, "explain", explain_slowly)


@pytest.fixture
def stall(monkeypatch):
    """A stall that ends with the test at the latest."""
    stall = Stall(monkeypatch)
    yield stall
    stall.released.set()


def test_reasons_that_take_too_long_are_left_out(make_client, ask_in_time, stall):
    """The answer is the model's, in time, without them; and plain requests are answered once the run is over."""
    client = make_client()
    asked = {"items": ["i01", "i02"], "timeout_ms": 300, "explain": True}
    answers = ask_in_time(lambda: client.recommend(**asked), within_s=0.3)
    first = answers[0]
    assert (first["source"], first["degraded"], first["explained"]) == ("model", None, None)
    assert {reasons for item in first["items"] for reasons in [item["reasons"]]} == {None}
    assert client.service.recommender.variants.champion.runner._running_since_s is not None
    stall.released.set()
    answer = client.recommend(items=["i01", "i02"], explain=True)
    assert answer["explained"] == 2
    counts = client.counts()
    assert counts['nextitem_explained_total{result="timeout"}'] >= 1
    assert counts['nextitem_explained_total{result="explained"}'] == 1


def test_one_run_explains_at_a_time(make_client, stall):
    """Nine ask at once: the others wait for their turn, and all of them are explained."""
    client = make_client()

    async def scenario():
        asked = {"items": ["i01", "i02"], "timeout_ms": 2000, "explain": True}
        answers = [asyncio.create_task(client.http.post("/recommend", json=asked)) for _ in range(9)]
        await asyncio.to_thread(stall.begun.wait, 10)
        await asyncio.sleep(0.05)
        assert stall.runs == 1
        stall.released.set()
        return [answer.json() for answer in await asyncio.gather(*answers)]

    answers = client.run(scenario())
    assert [answer["explained"] for answer in answers] == [2] * 9
    assert (stall.most, stall.runs) == (1, 9)


def test_who_leaves_takes_no_run(make_client, stall):
    """Those that gave up before their turn are not explained, and the turn goes on to the next."""
    client = make_client()

    async def scenario():
        asked = {"items": ["i01", "i02"], "timeout_ms": 2000, "explain": True}
        first = asyncio.create_task(client.http.post("/recommend", json=asked))
        await asyncio.to_thread(stall.begun.wait, 10)
        left = [asyncio.create_task(client.http.post("/recommend", json=asked)) for _ in range(3)]
        await asyncio.sleep(0.05)
        for task in left:
            task.cancel()
        await asyncio.sleep(0.01)
        stall.released.set()
        last = await client.http.post("/recommend", json=asked)
        return (await first).json(), last.json()

    assert [answer["explained"] for answer in client.run(scenario())] == [2, 2]
    assert stall.runs == 2


def test_no_answer_waits_for_its_reasons(make_client, stall):
    """With 20 ms, and a run that takes far longer: null or popular items, each at once, none refused."""
    client = make_client()
    answers = [client.recommend(items=["i01", "i02", "i03"], timeout_ms=20, explain=True) for _ in range(ANSWERS)]
    assert not stall.released.is_set()
    assert {answer["explained"] for answer in answers if answer["source"] == "model"} == {None}
    assert {answer["explained"] for answer in answers if answer["source"] != "model"} <= {0}
    took_ms = [answer["took_ms"] for answer in answers]
    assert min(took_ms) <= 20  # a busy machine makes any single answer late
    assert max(took_ms) < 1000


def test_an_engine_that_fails_to_explain_spoils_no_answer(make_client, monkeypatch, caplog):
    """Null, the log says why, and neither health nor the next answer suffers."""
    client = make_client()

    def fail(*_):
        raise EngineUnavailable("injected")

    with monkeypatch.context() as patch:
        patch.setattr(LiveModel, "explain", fail)
        answer = client.recommend(items=["i01", "i02"], explain=True)
    assert (answer["source"], answer["degraded"], answer["explained"]) == ("model", None, None)
    assert "An answer could not be explained" in caplog.text
    assert client.counts()['nextitem_explained_total{result="failed"}'] == 1
    assert client.get("/health/ready").json()["status"] == "ok"
    assert client.recommend(items=["i01", "i02"], explain=True)["explained"] == 2


def test_a_model_that_retires_explains_no_more(make_client):
    """Its thread takes no calls: the answer goes without reasons at once, and the turn is free again."""
    client = make_client()
    variant = client.service.recommender.variants.champion
    batcher = variant.batcher
    submit = batcher.submit

    async def answer_and_retire(pending, *, expires_s):
        answer = await submit(pending, expires_s=expires_s)
        batcher._closing = True
        return answer

    batcher.submit = answer_and_retire
    began_s = time.perf_counter()
    assert client.recommend(items=["i01", "i02"], explain=True)["explained"] is None
    assert time.perf_counter() - began_s < 1.5  # of the 2 s that it had
    batcher._closing, batcher.submit = False, submit
    assert client.recommend(items=["i01", "i02"], explain=True)["explained"] == 2


def test_stages_of_an_explained_answer_add_up(make_client, stall):
    """Waiting for the turn is queueing, explaining is inference."""
    client = make_client()
    threading.Timer(0.3, stall.released.set).start()
    answer = client.recommend(items=["i01", "i02"], explain=True)
    assert answer["took_ms"] >= 150
    counts = client.counts()
    stages = {
        stage: counts[f'nextitem_stage_duration_seconds_sum{{stage="{stage}"}}']
        for stage in ("history", "encode", "queue", "inference", "respond")
    }
    assert stages["inference"] >= 0.1
    route = 'nextitem_http_request_duration_seconds_sum{code="200",method="POST",route="/recommend"}'
    assert sum(stages.values()) == pytest.approx(counts[route], abs=1e-3)

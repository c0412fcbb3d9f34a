"""POST /recommend/batch: the answers of /recommend, in order, or one error for all."""

import asyncio
import itertools
import threading

import pytest

from service.api.requests import MAX_REQUESTS
from service.http.body import BATCH_MAX_BYTES
from service.http.routes import recommend
from service.inference.model import LiveModel
from service.ranking.pipeline import Pipeline
from service.recommend import time_slices
from service.recommend.recommender import MAX_BATCHED


def ask(client, *requests):
    """The response to a batch; patient, since machines may be slow."""
    return client.post("/recommend/batch", {"requests": [{"timeout_ms": 2000, **request} for request in requests]})


def test_each_is_answered_as_alone(client, user):
    """History, items, restrictions and a cold start: the same answers as one by one, in the order asked."""
    client.send({"user_id": user, "item_id": "i01"}, {"user_id": user, "item_id": "i02"})
    requests = [
        {"user_id": user, "k": 3},
        {"items": ["i05", "nobody-knows"], "exclude_item_ids": ["i06"]},
        {"user_id": f"{user}-new", "k": 1},
        {"user_id": user, "candidate_item_ids": ["i01", "i03"], "exclude_seen": False},
    ]
    response = ask(client, *requests)
    assert response.status_code == 200
    varying = {"items", "recommendation_id", "took_ms"}
    for request, answer in zip(requests, response.json()["responses"], strict=True):
        alone = client.recommend(**request)
        assert [item["item_id"] for item in answer["items"]] == [item["item_id"] for item in alone["items"]]
        assert [item["score"] for item in answer["items"]] == pytest.approx([item["score"] for item in alone["items"]])
        assert {key: answer[key] for key in answer.keys() - varying} == {
            key: alone[key] for key in alone.keys() - varying
        }


def test_the_largest_batch_finds_room(make_client):
    """All of MAX_REQUESTS come from the model, though the queue holds far fewer, and one batch more is refused."""
    client = make_client(max_batch=8, max_queue=16)
    requests = [{"items": ["i01"] * (1 + number % 7)} for number in range(MAX_REQUESTS)]
    answers = ask(client, *requests).json()["responses"]
    assert {(answer["source"], answer["degraded"]) for answer in answers} == {("model", None)}
    assert len({answer["recommendation_id"] for answer in answers}) == MAX_REQUESTS
    assert client.counts()["nextitem_batch_size_count"] < MAX_REQUESTS / 4
    response = ask(client, *requests, {"items": ["i01"]})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/requests")


def test_one_that_is_not_valid_refuses_all(client):
    """With a pointer that names it; nothing is answered."""
    before = client.counts()[
        'nextitem_recommendations_total{source="model",variant="champion",version="20261121T101500-tiny"}'
    ]
    response = ask(client, {"items": ["i01"]}, {"items": ["i01"], "k": 0}, {"user_id": 7})
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == ["/requests/1/k", "/requests/2/user_id"]
    assert (
        client.counts()[
            'nextitem_recommendations_total{source="model",variant="champion",version="20261121T101500-tiny"}'
        ]
        == before
    )


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"requests": []}, "/requests"),
        ({}, "/requests"),
        ({"requests": {"items": []}}, "/requests"),
        ({"requests": [{"k": 1}]}, "/requests/0"),
        ({"requests": [{"items": []}, 5]}, "/requests/1"),
        ({"requests": [{"items": []}], "k": 1}, ""),
        ({"k": 1}, ""),
        ({"requests": [{"items": [], "return_metadata": 1}]}, "/requests/0/return_metadata"),
        ({"requests": [{"items": [], "return_metadata": True, "k": 101}]}, "/requests/0/return_metadata"),
    ],
)
def test_what_is_no_batch_is_refused(client, document, pointer):
    """An empty list, none, something else, a request without a history, no request, a field that is unknown."""
    response = client.post("/recommend/batch", document)
    assert response.status_code == 422
    assert pointer in [error["pointer"] for error in response.json()["errors"]]


def test_a_history_that_is_behind_refuses_all(client, user):
    """409, as for one; the others are not waited for."""
    response = ask(client, {"items": ["i01"]}, {"user_id": user, "min_history_version": 9, "timeout_ms": 50})
    assert (response.status_code, response.json()["type"]) == (409, "urn:nextitem:problem:history-version")


def test_who_has_no_time_left_gets_popular_items(make_client, monkeypatch):
    """Each request of a batch has its own deadline, which began with the batch."""
    client = make_client(max_batch=1, max_queue=2)
    rank, released = LiveModel.rank, threading.Event()

    def wait_and_rank(model, questions):
        released.wait(60)
        return rank(model, questions)

    monkeypatch.setattr(LiveModel, "rank", wait_and_rank)
    answers = ask(client, *[{"items": ["i01"], "timeout_ms": 100}] * 5).json()["responses"]
    released.set()
    assert {(answer["source"], answer["degraded"]) for answer in answers} == {("popular", "deadline")}


def test_the_body_has_a_cap_of_its_own(client):
    """More than 4 MiB is too large, and what /recommend would not take is not."""
    headers = {"content-type": "application/json"}
    padded = b'{"requests": [{"items": ["i01"], "timeout_ms": 2000}]}'
    assert client.post("/recommend/batch", content=padded.ljust(BATCH_MAX_BYTES), headers=headers).status_code == 200
    response = client.post("/recommend/batch", content=padded.ljust(BATCH_MAX_BYTES + 1), headers=headers)
    assert response.status_code == 413


class Valve:
    """A model whose runs wait until they are let through."""

    def __init__(self, monkeypatch):
        rank = LiveModel.rank

        def wait_and_rank(model, questions):
            self.begun.set()
            self.open.wait(30)
            return rank(model, questions)

        self.begun, self.open = threading.Event(), threading.Event()
        monkeypatch.setattr(LiveModel, "rank", wait_and_rank)

    async def meet(self):
        """Wait until a run has begun."""
        assert await asyncio.to_thread(self.begun.wait, 10)
        await asyncio.sleep(0.05)


@pytest.fixture
def make_valve(monkeypatch):
    """Close a model's valve; it is opened after the test at the latest."""
    valves = []

    def make():
        valves.append(Valve(monkeypatch))
        return valves[-1]

    yield make
    for valve in valves:
        valve.open.set()


def send(client, count, **fields):
    """A task that asks for a batch of so many."""
    requests = [{"items": ["i01"], "timeout_ms": 2000, **fields}] * count
    return asyncio.create_task(client.http.post("/recommend/batch", json={"requests": requests}))


def list_sources(response):
    """Where the answers of a batch come from, and why."""
    assert response.status_code == 200, response.text
    return {(answer["source"], answer["degraded"]) for answer in response.json()["responses"]}


def test_hasty_batch_does_not_wait_for_a_patient_one(make_client, make_valve):
    """Behind the largest batch and a model that stalls, it is answered within its own time."""
    client, valve = make_client(), make_valve()

    async def scenario():
        patient = send(client, MAX_REQUESTS)
        await valve.meet()
        hasty = await send(client, 2, timeout_ms=100)
        assert not patient.done()
        valve.open.set()
        await patient
        return hasty

    hasty = client.run(scenario())
    assert list_sources(hasty) == {("popular", "deadline")}
    assert max(answer["took_ms"] for answer in hasty.json()["responses"]) < 1000


def test_batch_waits_for_a_full_queue(make_client, make_valve):
    """Beside as many lone questions as may wait, a batch larger than the queue is answered by the model, after them."""
    client, valve = make_client(max_batch=2, max_queue=2), make_valve()

    async def scenario():
        ask = {"items": ["i01"], "timeout_ms": 2000}
        lone = []
        for _ in range(4):  # two runs of one, and two that wait
            lone.append(asyncio.create_task(client.http.post("/recommend", json=ask)))
            await asyncio.sleep(0.02)
        batch = send(client, 8)
        await asyncio.sleep(0.05)
        assert not batch.done()
        valve.open.set()
        return await asyncio.gather(*lone), await batch

    lone, batch = client.run(scenario())
    assert {answer.json()["source"] for answer in lone} == {"model"}
    assert list_sources(batch) == {("model", None)}
    assert client.counts()['nextitem_fallbacks_total{reason="deadline"}'] == 0


def test_batch_leaves_room_in_the_queue(make_client, make_valve):
    """While all of a large batch waits, a lone question finds a place."""
    client, valve = make_client(max_batch=2, max_queue=1), make_valve()

    async def scenario():
        batch = send(client, 64)
        await valve.meet()
        lone = asyncio.create_task(client.http.post("/recommend", json={"items": ["i01"], "timeout_ms": 2000}))
        await asyncio.sleep(0.05)
        assert not lone.done()
        valve.open.set()
        answer = await lone
        assert not batch.done()
        return answer, await batch

    lone, batch = client.run(scenario())
    assert lone.json()["source"] == "model"
    assert list_sources(batch) == {("model", None)}


def test_questions_of_all_batches_are_bounded(make_client, make_valve):
    """Who finds no room for all its requests in time gets 503; others, lone questions too, are answered as ever."""
    client, valve = make_client(), make_valve()

    async def scenario():
        patient = [send(client, MAX_REQUESTS) for _ in range(MAX_BATCHED // MAX_REQUESTS)]
        await valve.meet()
        refused = await send(client, 2, timeout_ms=100)
        waiting = send(client, MAX_REQUESTS)
        await asyncio.sleep(0.05)
        valve.open.set()
        lone = await client.http.post("/recommend", json={"items": ["i01"], "timeout_ms": 2000})
        return refused, lone, await asyncio.gather(*patient, waiting)

    refused, lone, answered = client.run(scenario())
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:nextitem:problem:overloaded")
    assert 1 <= int(refused.headers["retry-after"]) <= 3
    assert lone.json()["source"] == "model"
    assert [list_sources(batch) for batch in answered] == [{("model", None)}] * 3
    assert client.counts()['nextitem_shed_total{reason="batches_full"}'] == 1


def test_batch_that_is_given_up_makes_room(make_client, make_valve):
    """Its requests hold no room and are not computed once its client has left."""
    client, valve = make_client(), make_valve()

    async def scenario():
        gone = [send(client, MAX_REQUESTS) for _ in range(MAX_BATCHED // MAX_REQUESTS)]
        await valve.meet()
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        valve.open.set()
        return await send(client, MAX_REQUESTS)

    assert list_sources(client.run(scenario())) == {("model", None)}
    assert client.counts()["nextitem_batch_size_sum"] < 2 * MAX_REQUESTS
    assert client.counts()["nextitem_queue_depth"] == 0


def test_batch_leaves_turns_to_others(make_client, make_valve, monkeypatch):
    """However long its work takes: to read it, and to answer all of it when its time is over."""
    monkeypatch.setattr(time_slices, "SLICE_S", 0.0)
    client, happened = make_client(), []
    make_valve()

    def note(owner, name, step):
        function = getattr(owner, name)

        def noted(*arguments, **options):
            happened.append(step)
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, noted)

    async def scenario():
        note(recommend, "_validate", "read")
        note(Pipeline, "answer_degraded", "answer")
        batch = send(client, MAX_REQUESTS, timeout_ms=100)
        while not batch.done():
            await asyncio.sleep(0)
            happened.append("turn")
        return await batch

    assert list_sources(client.run(scenario())) == {("popular", "deadline")}
    for step in ("read", "answer"):
        assert happened.count(step) == MAX_REQUESTS
        assert (step, step) not in itertools.pairwise(happened)

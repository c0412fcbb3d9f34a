"""POST /recommend/batch: the answers of /recommend, in order, or one error for all."""

import threading

import pytest

from service.body import BATCH_MAX_BYTES
from service.live_model import LiveModel
from service.schemas import MAX_REQUESTS


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
    before = client.counts()['nextitem_recommend_total{source="model",version="20261121T101500-tiny"}']
    response = ask(client, {"items": ["i01"]}, {"items": ["i01"], "k": 0}, {"user_id": 7})
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == ["/requests/1/k", "/requests/2/user_id"]
    assert client.counts()['nextitem_recommend_total{source="model",version="20261121T101500-tiny"}'] == before


@pytest.mark.parametrize(
    ("document", "pointer"),
    [({"requests": []}, "/requests"), ({}, "/requests"), ({"requests": [{"k": 1}]}, "/requests/0"), ({"k": 1}, "")],
)
def test_what_is_no_batch_is_refused(client, document, pointer):
    """An empty list, none, a request without a history, a field that is unknown."""
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

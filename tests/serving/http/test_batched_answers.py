"""Batched = single: whoever shares a model run gets the answer that they would get alone."""

import asyncio
import random

import pytest

ITEMS = [*(f"i{number:02d}" for number in range(1, 13)), "a/b", "100%", "new1", "new2", "__proto__"]


def draw_request(draw, users):
    """A random request of any kind."""
    request = {"timeout_ms": 2000, "k": draw.choice([1, 3, 10, 500]), "exclude_seen": draw.random() < 0.7}
    kind = draw.randrange(3)
    if kind != 1:
        request["user_id"] = draw.choice(users)
    if kind != 0:
        request["items"] = draw.choices(ITEMS, k=draw.randrange(15))
    if draw.random() < 0.4:
        request["exclude_item_ids"] = draw.choices(ITEMS, k=draw.randrange(6))
    if draw.random() < 0.4:
        request["candidate_item_ids"] = draw.choices(ITEMS, k=draw.randrange(1, 8))
    return request


def test_hundred_requests_at_once_are_answered_as_alone(make_client, user):
    """The same answers for 100 random requests asked one by one and all at once, in far fewer runs."""
    client = make_client(max_batch=16, max_queue=100, max_requests=100)
    draw = random.Random(7)  # noqa: S311 - a fixed choice of requests
    users = [f"{user}-{number}" for number in range(8)]
    for name in users[1:]:
        client.send(*({"user_id": name, "item_id": item} for item in draw.choices(ITEMS, k=draw.randrange(1, 20))))
    requests = [draw_request(draw, users) for _ in range(100)]
    alone = [client.recommend(**request) for request in requests]
    batches = client.counts()["nextitem_batch_size_count"]
    assert batches == 100

    async def ask_all():
        return await asyncio.gather(*(client.http.post("/recommend", json=request) for request in requests))

    together = [response.json() for response in client.run(ask_all())]
    assert client.counts()["nextitem_batch_size_count"] - batches <= 20
    for one, many in zip(alone, together, strict=True):
        assert [item["item_id"] for item in one["items"]] == [item["item_id"] for item in many["items"]]
        assert [item["score"] for item in one["items"]] == pytest.approx([i["score"] for i in many["items"]], abs=1e-6)
        varying = {"items", "recommendation_id", "took_ms"}
        assert {key: one[key] for key in one.keys() - varying} == {key: many[key] for key in many.keys() - varying}
    assert {answer["source"] for answer in alone} == {"model", "popular"}

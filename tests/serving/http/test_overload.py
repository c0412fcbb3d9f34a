"""More than can be answered: what is too much is told so at once, the rest is answered as ever, and events get in."""

import asyncio
import time
from collections import Counter

import pytest

from benchmarks.load import encode_post, fire, percentile, plan
from service.live_model import LiveModel

JSON = {"content-type": "application/json"}


def count_shed(client):
    """How many requests found no room, by reason."""
    counts = client.counts()
    return [counts[f'nextitem_shed_total{{reason="{name}_full"}}'] for name in ("queue", "requests", "events")]


def test_full_queue_is_answered_by_popular_items(make_client, monkeypatch, user):
    """Two runs under way, two requests waiting: the others are answered before any of these, and events are stored."""
    client = make_client(max_batch=1, max_queue=2, max_requests=10)
    rank = LiveModel.rank

    def rank_slowly(model, questions):
        time.sleep(0.2)
        return rank(model, questions)

    monkeypatch.setattr(LiveModel, "rank", rank_slowly)

    async def ask(ends):
        answer = await client.http.post("/recommend", json={"items": ["i01"], "timeout_ms": 2000})
        ends.append((answer.json()["source"], answer.json()["degraded"]))

    async def scenario():
        ends = []
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(ask(ends))
                await asyncio.sleep(0.02)
            for _ in range(5):
                group.create_task(ask(ends))
            receipt = await client.http.post("/events", json={"user_id": user, "item_id": "i01"})
            ends.append(receipt.status_code)
        return ends

    ends = client.run(scenario())
    assert Counter(ends) == {("popular", "overloaded"): 3, ("model", None): 4, 200: 1}
    assert ends[:3] == [("popular", "overloaded")] * 3
    assert count_shed(client) == [3, 0, 0]
    assert client.counts()['nextitem_fallback_total{reason="overloaded"}'] == 3


@pytest.mark.parametrize(
    ("full", "path", "refused"),
    [({"max_requests": 2}, "/recommend", [0, 1, 0]), ({"max_event_requests": 2}, "/events", [0, 0, 1])],
)
def test_beyond_its_limit_a_request_is_refused_unread(make_client, user, full, path, refused):
    """503 with Retry-After while two bodies are on their way; probes and the other kind get in, and the next does."""
    other = "/recommend" if path == "/events" else "/events"
    client = make_client(**full)
    document = {"user_id": user, "item_id": "i01"} if path == "/events" else {"user_id": user}
    read = []

    async def scenario():
        finish = asyncio.Event()

        async def send_slowly():
            yield b'{"user_id":'
            await finish.wait()
            yield b'"u","item_id":"i01"}' if path == "/events" else b'"u"}'

        async def never():
            read.append(True)
            yield b"{}"

        slow = [asyncio.create_task(client.http.post(path, content=send_slowly(), headers=JSON)) for _ in range(2)]
        await asyncio.sleep(0.05)
        full = await client.http.post(path, content=never(), headers=JSON)
        body = {"user_id": user, "item_id": "i01"} if other == "/events" else {"user_id": user}
        rest = [await client.http.post(other, json=body)]
        rest += [await client.http.get(probe) for probe in ("/health/live", "/health/ready", "/metrics")]
        finish.set()
        rest += [*await asyncio.gather(*slow), await client.http.post(path, json=document)]
        return full, [response.status_code for response in rest]

    answer, rest = client.run(scenario())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:nextitem:problem:overloaded"
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert read == []
    assert rest == [200] * 7
    assert count_shed(client) == refused
    assert (
        client.counts()[f'nextitem_http_request_duration_seconds_count{{code="503",method="POST",route="{path}"}}'] == 1
    )


def test_unknown_path_is_refused_under_no_name(make_client):
    """A path that nobody declared does not become a label because there is no room."""
    client = make_client(max_requests=1)
    client.app.middleware_stack = client.app.build_middleware_stack()

    async def scenario():
        async def never_ends():
            yield b"{"
            await asyncio.sleep(3600)

        slow = asyncio.create_task(client.http.post("/recommend", content=never_ends(), headers=JSON))
        await asyncio.sleep(0.05)
        answer = await client.http.get("/c4n4ry")
        slow.cancel()
        return answer.status_code

    assert client.run(scenario()) == 503
    assert "c4n4ry" not in client.get("/metrics").text


RUN_S = 0.05
BATCH = 4
CAPACITY = BATCH / RUN_S
"""Answers of the model a second."""


def test_three_times_the_capacity(start_process):
    """For five seconds: the model is kept busy with answers in time, refusals are immediate, no event is refused."""
    process = start_process("--max-batch", str(BATCH), run_s=RUN_S)
    host, port = process.url.removeprefix("http://").split(":")
    ask = encode_post("/recommend", b'{"user_id":"u1","items":["i01","i02"]}')
    send = encode_post("/events", b'{"user_id":"u1","item_id":"i03"}')
    asks = plan([ask], rate=3 * CAPACITY, seconds=5, label="ask")
    sends = plan([send], rate=10, seconds=5, label="send", seed=1)
    shots = sorted([*asks, *sends], key=lambda shot: shot.at_s)
    outcomes = asyncio.run(fire(host, int(port), shots))

    assert len(outcomes) == len(shots)
    assert {outcome.status for outcome in outcomes if outcome.label == "send"} == {200}
    asked = [outcome for outcome in outcomes if outcome.label == "ask"]
    by_kind = Counter((outcome.status, outcome.source, outcome.degraded) for outcome in asked)
    refused = {(503, "", ""), (200, "popular", "overloaded")}
    # A rushed read leaves the model to answer without the history: degraded, but its work all the same.
    modelled = {kind for kind in by_kind if kind[1] == "model"}
    assert by_kind.keys() <= refused | modelled | {(200, "popular", "deadline")}
    assert sum(by_kind[kind] for kind in modelled) >= 0.6 * CAPACITY * 5
    refusals = [
        outcome.latency_s - outcome.late_s
        for outcome in asked
        if (outcome.status, outcome.source, outcome.degraded) in refused
    ]
    assert len(refusals) >= CAPACITY * 5
    assert percentile(refusals, 0.5) < 0.05

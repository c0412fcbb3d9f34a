"""The metrics of a service after traffic that is known to the last request."""

import asyncio
import dataclasses
import time

import pytest

from service.inference.model import LiveModel
from service.telemetry.metrics import Metrics


@pytest.fixture
def fresh(make_client):
    """A service that nobody has asked anything yet."""
    return make_client()


def test_counts_are_those_of_the_traffic(fresh, user):
    """Events, answers, batches, stages, unknown items and requests are each counted once."""
    event = {"user_id": user, "item_id": "i01", "event_id": "e-1"}
    fresh.send(
        event, event, {"user_id": user, "item_id": "untrained", "type": "cart"}, {"user_id": user, "type": "nope"}
    )
    fresh.post("/events", {"user_id": user, "type": "click"})
    fresh.recommend(user_id=user)  # one unknown item in the history, which was counted when it came
    fresh.recommend(items=[])  # a cold start
    fresh.recommend(items=["i01", "what"], candidate_item_ids=["i02", "is", "this"])
    fresh.post("/recommend", {})
    fresh.get(f"/users/{user}/history")
    fresh.get(f"/{user}")
    counts = fresh.counts()

    def requests(route, method, code):
        name = "nextitem_http_request_duration_seconds_count"
        return counts[f'{name}{{code="{code}",method="{method}",route="{route}"}}']

    def events(event_type, result):
        return counts[f'nextitem_events_total{{result="{result}",type="{event_type}"}}']

    assert (events("view", "accepted"), events("view", "duplicate"), events("cart", "accepted")) == (1, 1, 1)
    assert (events("other", "rejected"), events("click", "rejected"), events("click", "accepted")) == (1, 1, 0)
    version = "20261121T101500-tiny"
    assert counts[f'nextitem_recommendations_total{{source="model",variant="champion",version="{version}"}}'] == 2
    assert counts[f'nextitem_recommendations_total{{source="popular",variant="champion",version="{version}"}}'] == 1
    assert counts['nextitem_fallbacks_total{reason="store_unavailable"}'] == 0
    assert counts["nextitem_unknown_items_total"] == 1 + 0 + 1 + 2
    assert counts["nextitem_batch_size_count"] == counts["nextitem_batch_size_sum"] == 3
    assert counts["nextitem_queue_wait_seconds_count"] == 3
    assert counts["nextitem_queue_depth"] == 0
    for stage in ("history", "encode", "queue", "inference", "respond"):
        assert counts[f'nextitem_stage_duration_seconds_count{{stage="{stage}"}}'] == 3
    assert counts["nextitem_event_lag_seconds_count"] == 2
    assert counts["nextitem_store_durable"] == 1
    assert counts["nextitem_store_memory_bytes"] > 100_000
    for op, calls in (("append", 1), ("read", 1), ("export", 1), ("ping", 1), ("inspect", 1)):
        assert counts[f'nextitem_store_duration_seconds_count{{op="{op}"}}'] == calls
    assert (requests("/recommend", "POST", 200), requests("/recommend", "POST", 422)) == (3, 1)
    assert (requests("/events", "POST", 200), requests("/events", "POST", 422)) == (1, 1)
    assert requests("/users/{user_id}/history", "GET", 200) == 1
    assert requests("unmatched", "GET", 404) == 1


def stages(client):
    """The seconds of all answers so far, by stage."""
    counts = client.counts()
    names = ("history", "encode", "queue", "inference", "respond")
    return {name: counts[f'nextitem_stage_duration_seconds_sum{{stage="{name}"}}'] for name in names}


SLOW_S = 0.25


def slow_history(client, monkeypatch):
    """A store that takes its time."""
    read_many = client.service.store.read_many

    async def read_slowly(user_ids, **options):
        await asyncio.sleep(SLOW_S)
        return await read_many(user_ids, **options)

    monkeypatch.setattr(client.service.store, "read_many", read_slowly)


def slow_engine(_client, monkeypatch):
    """A model that takes its time."""
    rank = LiveModel.rank

    def rank_slowly(model, questions):
        time.sleep(SLOW_S)
        return rank(model, questions)

    monkeypatch.setattr(LiveModel, "rank", rank_slowly)


def busy_engine(client, _monkeypatch):
    """A model that another batch is using."""
    client.service.recommender.variants.champion.runner._thread.submit(time.sleep, SLOW_S)


def late_version(client, monkeypatch):
    """A history that gets as new as asked for in a while: waiting for it is no queue."""
    read_many = client.service.store.read_many
    started = time.monotonic()

    async def read_behind(user_ids, **options):
        histories = await read_many(user_ids, **options)
        late = time.monotonic() - started < SLOW_S
        return [dataclasses.replace(history, version=0) if late else history for history in histories]

    monkeypatch.setattr(client.service.store, "read_many", read_behind)


@pytest.mark.parametrize(
    ("make_slow", "stage"),
    [(slow_history, "history"), (slow_engine, "inference"), (busy_engine, "queue"), (late_version, "history")],
)
def test_each_stage_has_the_time_that_is_spent_in_it(fresh, user, monkeypatch, make_slow, stage):
    """Whichever is slow, and no other, has the time."""
    fresh.send({"user_id": user, "item_id": "i01"})
    fresh.recommend(user_id=user)
    before = stages(fresh)
    make_slow(fresh, monkeypatch)
    fresh.recommend(user_id=user, min_history_version=1)
    after = stages(fresh)
    spent = {name: after[name] - before[name] for name in after}
    assert spent.pop(stage) >= 0.7 * SLOW_S
    assert max(spent.values()) < 0.5 * SLOW_S


def test_slow_body_is_part_of_encode(fresh):
    """Whoever sends slowly is not taken for a slow engine."""
    before = stages(fresh)

    async def send_slowly():
        yield b'{"items":'
        await asyncio.sleep(SLOW_S)
        yield b'["i01"]}'

    response = fresh.request("POST", "/recommend", content=send_slowly(), headers={"content-type": "application/json"})
    assert response.status_code == 200
    assert stages(fresh)["encode"] - before["encode"] >= 0.7 * SLOW_S


def test_stages_without_the_engine(fresh, user, monkeypatch):
    """With the batcher gone, answers still have their stages."""
    fresh.send({"user_id": user, "item_id": "i01"})
    fresh.run(fresh.service.recommender.variants.champion.batcher.close())
    slow_history(fresh, monkeypatch)
    assert fresh.recommend(user_id=user)["degraded"] == "engine_unavailable"
    spent = stages(fresh)
    assert spent["history"] >= 0.7 * SLOW_S
    assert spent["inference"] == 0
    assert spent["encode"] < 0.5 * SLOW_S


def test_lag_is_in_seconds_and_never_negative(fresh, user):
    """An event of ten seconds ago adds ten, one of a clock that is a minute ahead nothing."""
    now_ms = int(time.time() * 1000)
    fresh.send(
        {"user_id": user, "item_id": "i01", "timestamp": now_ms - 10_000},
        {"user_id": user, "item_id": "i01", "timestamp": now_ms + 60_000},
    )
    counts = fresh.counts()
    assert counts["nextitem_event_lag_seconds_count"] == 2
    assert counts["nextitem_event_lag_seconds_sum"] == pytest.approx(10, abs=1)


def test_lag_of_milliseconds_is_seen(fresh):
    """What is accepted within milliseconds is told from what took a tenth of a second."""
    for lag_s in (0.0005, 0.002, 0.02, 0.09):
        fresh.service.metrics.event_accepted(lag_s)
    counts = fresh.counts()
    bounds = ("0.001", "0.003", "0.01", "0.03", "0.1")
    assert [counts[f'nextitem_event_lag_seconds_bucket{{le="{bound}"}}'] for bound in bounds] == [1, 2, 2, 3, 4]


def test_unknown_item_counts_when_it_comes(fresh, user):
    """In an accepted event and in what a request names, alone or in a batch; not in retries, nor in histories."""

    def count():
        return fresh.counts()["nextitem_unknown_items_total"]

    event = {"user_id": user, "item_id": "untrained", "event_id": "e-1"}
    fresh.send(event, event, event | {"type": "cart"}, event | {"event_id": "e-2", "type": "nope"})
    assert count() == 1
    for _ in range(3):
        fresh.recommend(user_id=user)
    fresh.post("/recommend/batch", {"requests": [{"user_id": user, "timeout_ms": 2000}] * 3})
    assert count() == 1
    fresh.recommend(items=["i01", "what", "what"], candidate_item_ids=["i02", "what"])
    assert count() == 2
    fresh.post("/recommend/batch", {"requests": [{"items": ["what"], "timeout_ms": 2000}] * 3})
    assert count() == 5


def test_no_id_becomes_a_label(fresh, user):
    """Whoever reads the metrics learns no user, no item and no path that was asked for."""
    fresh.send({"user_id": user, "item_id": "c4n4ry"})
    fresh.recommend(user_id=user)
    fresh.get(f"/users/{user}/history")
    fresh.get("/items/c4n4ry")
    fresh.get("/c4n4ry")
    fresh.request("C4N4RY", "/model")
    text = fresh.get("/metrics").text
    assert user not in text
    assert "c4n4ry" not in text.lower()


def test_every_route_counts_under_its_template(fresh, user):
    """Each route that is served has its own series, documentation included."""
    for path in (
        f"/users/{user}%2Fx/history",
        "/items?query=c4n4ry",
        "/items/a%2Fb",
        "/model",
        "/health/live",
        "/health/ready",
        "/metrics",
        "/docs",
        "/openapi.json",
    ):
        assert fresh.get(path).status_code == 200
    counts = fresh.counts()
    for route in (
        "/users/{user_id}/history",
        "/items",
        "/items/{item_id}",
        "/model",
        "/health/live",
        "/health/ready",
        "/metrics",
        "/docs",
        "/openapi.json",
    ):
        assert counts[f'nextitem_http_request_duration_seconds_count{{code="200",method="GET",route="{route}"}}'] == 1


def test_many_who_ask_for_metrics_share_what_is_written(fresh, monkeypatch):
    """A crowd costs as much as two: those who come while it is written get the next one together."""
    expose, written = Metrics.expose, []

    def write_slowly(metrics, names):
        written.append(metrics)
        time.sleep(0.05)
        return expose(metrics, names)

    monkeypatch.setattr(Metrics, "expose", write_slowly)

    async def crowd():
        return await asyncio.gather(*(fresh.http.get("/metrics") for _ in range(50)))

    assert {response.status_code for response in fresh.run(crowd())} == {200}
    assert 1 <= len(written) <= 5


def test_some_metrics_are_asked_for_by_name(fresh):
    """Only the samples of these names, as all metrics have them; old names, too; unknown ones have none."""
    fresh.recommend(items=["i01"])
    wanted = ["nextitem_recommendations_total", "nextitem_stage_duration_seconds_bucket", "nextitem_recommend_total"]
    named = fresh.get("/metrics", params={"name[]": [*wanted, "nextitem_c4n4ry"]})
    assert named.headers["content-type"] == fresh.get("/metrics").headers["content-type"]
    read = dict(line.rsplit(" ", 1) for line in named.text.splitlines() if line[0] != "#")
    assert {name.partition("{")[0] for name in read} == {*wanted}
    whole = fresh.get("/metrics").text.splitlines()
    assert read == dict(line.rsplit(" ", 1) for line in whole if line.startswith(tuple(f"{name}{{" for name in wanted)))
    assert fresh.get("/metrics", params={"name[]": ["nextitem_c4n4ry"]}).text == ""
    assert set(fresh.get("/metrics", params={"of": "shop"}).text.splitlines()) >= {
        line for line in whole if line.startswith("# HELP")
    }

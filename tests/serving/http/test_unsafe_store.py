"""What clients and operators see of a store that may lose events."""

import pytest
from redis import Redis

from service import breaker, durability, health
from service.embedded import EmbeddedStore


@pytest.fixture
def own_store(tmp_path, monkeypatch):
    """A store whose settings a test may change; it is looked at as often as it is asked for."""
    monkeypatch.setattr(durability, "LOOK_AGAIN_S", 0)
    monkeypatch.setattr(health, "PING_EVERY_S", 0)
    monkeypatch.setattr("service.store_watch.LOOK_EVERY_S", 0)
    with EmbeddedStore(tmp_path / "data") as store, Redis.from_url(store.url) as raw:
        yield store, raw


def test_events_wait_until_the_store_is_safe_again(make_client, own_store, user):
    """503 with Retry-After, nothing stored, readiness and gauge say why, recommendations go on; then all is well."""
    store, raw = own_store
    client = make_client(redis_url=store.url)
    event = {"user_id": user, "item_id": "i01", "event_id": "e"}
    client.send(event)
    raw.config_set("appendfsync", "everysec")
    for _ in range(2 * breaker.CALLS):  # which would open the breaker, if it took them for an outage
        client.post("/events", {**event, "event_id": "f"})

    refused = client.post("/events", {**event, "event_id": "f"})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["type"] == "urn:nextitem:problem:store-unavailable"
    assert "may lose events" in refused.json()["detail"]
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "degraded", "reasons": ["store_not_durable"]})
    assert client.counts()["nextitem_store_durable"] == 0
    assert client.counts()['nextitem_store_errors_total{kind="unsafe"}'] == 2 * breaker.CALLS + 1
    answer = client.recommend(user_id=user)
    assert (answer["source"], answer["degraded"]) == ("model", None)

    raw.config_set("appendfsync", "always")
    assert client.send({**event, "event_id": "g"})["accepted"] == 1
    assert client.get("/health/ready").json() == {"status": "ok", "reasons": []}
    assert client.counts()["nextitem_store_durable"] == 1


def test_relaxed_takes_events_and_says_so(make_client, own_store, user):
    """With `--durability relaxed` events are taken; readiness and the gauge still tell."""
    store, raw = own_store
    raw.config_set("appendfsync", "everysec")
    client = make_client(redis_url=store.url, durability="relaxed")
    assert client.send({"user_id": user, "item_id": "i01"})["accepted"] == 1
    assert client.get("/health/ready").json() == {"status": "degraded", "reasons": ["store_not_durable"]}
    assert client.counts()["nextitem_store_durable"] == 0


def test_store_that_is_down_at_the_start(make_client, tmp_path, user):
    """The service starts, answers popular items, and takes events once the store is there and passes."""
    socket = tmp_path / "s"
    client = make_client(redis_url=f"unix://{socket}")
    assert client.recommend(user_id=user)["degraded"] == "store_unavailable"
    event = {"user_id": user, "item_id": "i01", "event_id": "e"}
    assert client.post("/events", event).status_code == 503
    with EmbeddedStore(tmp_path / "data") as store:
        socket.symlink_to(store.url.removeprefix("unix://"))
        assert client.send(event)["accepted"] == 1
        assert client.recommend(user_id=user)["degraded"] is None

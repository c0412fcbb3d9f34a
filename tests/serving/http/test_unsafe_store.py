"""What clients and operators see of a store that may lose events."""

import pytest
from redis import Redis

from service import health
from service.embedded.server import EmbeddedStore
from service.store import circuit_breaker, durability
from service.store.redis_keys import LOST_EVENTS


@pytest.fixture
def own_store(tmp_path, monkeypatch):
    """A store whose settings a test may change; it is looked at as often as it is asked for."""
    monkeypatch.setattr(durability, "RECHECK_S", 0)
    monkeypatch.setattr(health, "PING_EVERY_S", 0)
    monkeypatch.setattr("service.store_monitor.REFRESH_S", 0)
    with EmbeddedStore(tmp_path / "data") as store, Redis.from_url(store.url) as raw:
        yield store, raw


def test_events_wait_until_the_store_is_safe_again(make_client, own_store, user):
    """503 with Retry-After, nothing stored, readiness and gauge say why, recommendations go on; then all is well."""
    store, raw = own_store
    client = make_client(redis_url=store.url)
    event = {"user_id": user, "item_id": "i01", "event_id": "e"}
    client.send(event)
    raw.config_set("appendfsync", "everysec")
    for _ in range(2 * circuit_breaker.CALLS):  # which would open the breaker, if it took them for an outage
        client.post("/events", {**event, "event_id": "f"})

    refused = client.post("/events", {**event, "event_id": "f"})
    assert (refused.status_code, refused.headers["retry-after"] in {"1", "2", "3"}) == (503, True)
    assert refused.json()["type"] == "urn:nextitem:problem:store-unavailable"
    assert "may lose events" in refused.json()["detail"]
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "degraded", "reasons": ["store_not_durable"]})
    assert client.counts()["nextitem_store_durable"] == 0
    assert client.counts()['nextitem_store_errors_total{kind="unsafe"}'] == 2 * circuit_breaker.CALLS + 1
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


def test_lost_events_are_told_until_that_is_acknowledged(make_client, own_store, user):
    """A store that was found to have lost events is ready and degraded, and goes on taking events."""
    store, raw = own_store
    raw.set(LOST_EVENTS, 3)
    client = make_client(redis_url=store.url)
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "degraded", "reasons": ["store_lost_events"]})
    assert client.counts()["nextitem_store_lost_events"] == 3
    assert client.send({"user_id": user, "item_id": "i01"})["accepted"] == 1
    raw.delete(LOST_EVENTS)
    assert client.get("/health/ready").json() == {"status": "ok", "reasons": []}
    assert client.counts()["nextitem_store_lost_events"] == 0


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


def test_ready_says_that_no_event_can_be_stored(make_client, own_store, user, caplog):
    """Full or a replica, the store refuses events: 200, degraded, before and after one is refused; then ok."""
    store, raw = own_store
    client = make_client(redis_url=store.url)
    event = {"user_id": user, "item_id": "i01", "event_id": "e"}
    client.send(event)
    for refuse, allow in (
        (lambda: raw.config_set("maxmemory", 1), lambda: raw.config_set("maxmemory", 0)),
        (lambda: raw.replicaof("127.0.0.1", "1"), lambda: raw.replicaof("NO", "ONE")),
    ):
        refuse()
        for _ in range(2):
            ready = client.get("/health/ready")
            assert (ready.status_code, ready.json()) == (
                200,
                {"status": "degraded", "reasons": ["store_refuses_events"]},
            )
            assert client.post("/events", {**event, "event_id": "f"}).status_code == 503
        allow()
        assert client.send(event)["duplicates"] == 1
        assert client.get("/health/ready").json() == {"status": "ok", "reasons": []}
    assert "The store refuses events: it is full." in caplog.text
    assert "The store refuses events: it is a replica." in caplog.text
    assert "Store appends fail (refused, OOM): it is full." in caplog.text
    assert "The store accepts events again" in caplog.text


def test_ready_says_that_events_are_refused_for_what_only_they_meet(make_client, own_store, user):
    """A missing permission shows with the first event, and no more when one is stored."""
    store, raw = own_store
    client = make_client(redis_url=store.url)
    event = {"user_id": user, "item_id": "i01", "event_id": "e"}
    raw.acl_setuser("default", enabled=True, commands=["-evalsha"])
    assert client.get("/health/ready").json() == {"status": "ok", "reasons": []}
    assert client.post("/events", event).status_code == 503
    assert client.get("/health/ready").json() == {"status": "degraded", "reasons": ["store_refuses_events"]}
    raw.acl_setuser("default", enabled=True, commands=["+evalsha"])
    assert client.send(event)["accepted"] == 1
    assert client.get("/health/ready").json() == {"status": "ok", "reasons": []}


def test_writable_replica_gets_no_acknowledged_event(make_client, own_store, user):
    """What a replica takes is gone at its next sync: its own setting gives it away, whenever it becomes one."""
    store, raw = own_store
    client = make_client(redis_url=store.url)
    client.send({"user_id": user, "item_id": "i01"})
    raw.config_set("replica-read-only", "no")
    raw.replicaof("127.0.0.1", "1")
    for number in range(2):  # the append's own look, and the guard after it
        refused = client.post("/events", {"user_id": user, "item_id": "i01", "event_id": f"e{number}"})
        assert refused.status_code == 503
        assert "may lose events" in refused.json()["detail"]
    assert "store_not_durable" in client.get("/health/ready").json()["reasons"]
    raw.replicaof("NO", "ONE")

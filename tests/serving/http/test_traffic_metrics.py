"""The metrics of a service after traffic that is known to the last request."""

import pytest


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
    fresh.recommend(user_id=user)  # one unknown item in the history
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
    assert counts[f'nextitem_recommend_total{{source="model",version="{version}"}}'] == 2
    assert counts[f'nextitem_recommend_total{{source="popular",version="{version}"}}'] == 1
    assert counts['nextitem_fallback_total{reason="store_unavailable"}'] == 0
    assert counts["nextitem_unknown_items_total"] == 1 + 1 + 1 + 2
    assert counts["nextitem_batch_size_count"] == counts["nextitem_batch_size_sum"] == 3
    assert counts["nextitem_queue_wait_seconds_count"] == 3
    assert counts["nextitem_queue_depth"] == 0
    for stage, runs in (("history", 3), ("encode", 3), ("queue", 2), ("inference", 2), ("respond", 3)):
        assert counts[f'nextitem_stage_duration_seconds_count{{stage="{stage}"}}'] == runs
    for op, calls in (("append", 1), ("read", 1), ("export", 1), ("ping", 0)):
        assert counts[f'nextitem_store_duration_seconds_count{{op="{op}"}}'] == calls
    assert (requests("/recommend", "POST", 200), requests("/recommend", "POST", 422)) == (3, 1)
    assert (requests("/events", "POST", 200), requests("/events", "POST", 422)) == (1, 1)
    assert requests("/users/{user_id}/history", "GET", 200) == 1
    assert requests("unmatched", "GET", 404) == 1


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
        "/items/{item_id}",
        "/model",
        "/health/live",
        "/health/ready",
        "/metrics",
        "/docs",
        "/openapi.json",
    ):
        assert counts[f'nextitem_http_request_duration_seconds_count{{code="200",method="GET",route="{route}"}}'] == 1

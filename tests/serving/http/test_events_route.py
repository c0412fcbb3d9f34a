"""POST /events: what is stored, what is refused, and what the receipt says of it."""

import time

import pytest


def history(client, user):
    """The item ids that are stored."""
    return [event["item_id"] for event in client.get(f"/users/{user}/history").json()["events"]]


def test_single_event_needs_no_envelope(client, user):
    """One event object is a batch of one."""
    response = client.post(
        "/events", {"user_id": user, "item_id": "i01", "type": "cart", "value": 2, "properties": {"a": 1}}
    )
    receipt = response.json()
    assert (response.status_code, receipt["accepted"], receipt["history"]) == (200, 1, {user: 1})
    [event] = client.get(f"/users/{user}/history").json()["events"]
    assert (event["item_id"], event["type"], event["value"]) == ("i01", "cart", 2.0)


def test_repeat_is_a_duplicate_and_changes_nothing(client, user):
    """The same event sent again, in the same request or later, counts as a duplicate."""
    event = {"event_id": "e-1", "user_id": user, "item_id": "i01"}
    receipt = client.send(event, event)
    assert (receipt["accepted"], receipt["duplicates"]) == (1, 1)
    receipt = client.send(event)
    assert (receipt["accepted"], receipt["duplicates"], receipt["rejected"], receipt["history"]) == (
        0,
        1,
        [],
        {user: 1},
    )
    assert history(client, user) == ["i01"]


def test_same_id_with_other_content_is_a_conflict(client, user):
    """A conflict is rejected with its place in the request, and does not refuse the others."""
    client.send({"event_id": "e-1", "user_id": user, "item_id": "i01"})
    receipt = client.send(
        {"event_id": "e-2", "user_id": user, "item_id": "i02"}, {"event_id": "e-1", "user_id": user, "item_id": "i09"}
    )
    assert receipt["accepted"] == 1
    [rejection] = receipt["rejected"]
    assert (rejection["index"], rejection["pointer"], rejection["code"]) == (1, "/event_id", "conflict")
    assert history(client, user) == ["i01", "i02"]


def test_conflict_about_an_id_that_nobody_sent(client, user):
    """A second rating in the same instant is told from a retry and what to do about it; with an id it is taken."""
    event = {"user_id": user, "item_id": "i01", "type": "rating", "value": 3, "timestamp": 1_763_719_498_000}
    assert client.send(event)["accepted"] == 1
    receipt = client.send(event, event | {"value": 5}, event | {"value": 5, "event_id": "e-2"})
    assert (receipt["duplicates"], receipt["accepted"]) == (1, 1)
    [rejection] = receipt["rejected"]
    assert (rejection["index"], rejection["pointer"], rejection["code"]) == (1, "/timestamp", "derived_id_conflict")
    assert "event_id" in rejection["detail"]


def test_conflict_is_reported_with_strict_too(client, user):
    """`strict` concerns validation: a conflict found while storing is reported, not refused."""
    client.send({"event_id": "e-1", "user_id": user, "item_id": "i01"})
    response = client.post("/events?strict=true", {"event_id": "e-1", "user_id": user, "item_id": "i02"})
    assert (response.status_code, response.json()["rejected"][0]["code"]) == (200, "conflict")


def test_invalid_events_cost_only_themselves(client, user):
    """The others are stored; sent = accepted + duplicates + rejected; rejections name place, pointer and code."""
    good = {"event_id": "e-1", "user_id": user, "item_id": "i01"}
    events = [
        good,
        {"user_id": user, "item_id": "x" * 257},
        good,
        {"user_id": user, "item_id": "i01", "unknown": 1},
        17,
    ]
    receipt = client.send(*events)
    assert (receipt["accepted"], receipt["duplicates"], len(receipt["rejected"])) == (1, 1, 3)
    assert [(entry["index"], entry["pointer"], entry["code"]) for entry in receipt["rejected"]] == [
        (1, "/item_id", "too_long"),
        (3, "", "extra_forbidden"),
        (4, "", "object_type"),
    ]


def test_strict_refuses_all_for_one(client, user):
    """With ?strict=true one invalid event is 422 and nothing is stored."""
    events = [{"user_id": user, "item_id": "i01"}, {"user_id": user, "item_id": ""}]
    response = client.post("/events?strict=true", {"events": events})
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/events/1/item_id"
    assert history(client, user) == []
    assert client.post("/events?strict=false", {"events": events}).json()["accepted"] == 1


def test_only_invalid_events_are_refused(client, user):
    """422 with at most ten faults when no event is valid."""
    response = client.post("/events", {"events": [{"user_id": user}] * 30})
    assert (response.status_code, len(response.json()["errors"])) == (422, 10)


@pytest.mark.parametrize("query", ["?strict=1", "?strict=TRUE", "?strict", "?strict=true&strict=true", "?dry_run=true"])
def test_other_queries_are_refused(client, user, query):
    """A misspelled or unknown query parameter is an error, not a wish that is overheard."""
    response = client.post(f"/events{query}", {"user_id": user, "item_id": "i01"})
    assert (response.status_code, response.json()["type"]) == (422, "urn:nextitem:problem:validation")
    assert history(client, user) == []


@pytest.mark.parametrize(
    ("timestamp", "stored"),
    [
        (946_684_800_000, 946_684_800_000),
        ("2000-01-01T00:00:00Z", 946_684_800_000),
        ("2026-01-02T03:04:05+02:00", 1_767_315_845_000),
        ("2026-01-02t03:04:05.1239z", 1_767_323_045_123),
        ("2026-01-02 03:04:05.5-00:30", 1_767_324_845_500),
    ],
)
def test_timestamps_in_both_forms(client, user, timestamp, stored):
    """RFC 3339 with zone and epoch milliseconds mean the same moments."""
    client.send({"user_id": user, "item_id": "i01", "timestamp": timestamp})
    assert client.get(f"/users/{user}/history").json()["events"][0]["timestamp"] == stored


def test_timestamps_up_to_five_minutes_ahead(client, user):
    """A clock that is a little fast is no error; one that is off is."""
    now_ms = time.time_ns() // 1_000_000
    receipt = client.send(
        {"user_id": user, "item_id": "i01", "timestamp": now_ms + 290_000},
        {"user_id": user, "item_id": "i02", "timestamp": now_ms + 310_000},
    )
    assert (receipt["accepted"], receipt["rejected"][0]["code"]) == (1, "ts_range")


def test_events_are_kept_in_time_order(client, user):
    """An event that arrives late but in time for the history is put in its place."""
    for item, at in (("i01", 1), ("i03", 3), ("i02", 2)):
        client.send({"user_id": user, "item_id": item, "timestamp": 10**12 + at})
    assert history(client, user) == ["i01", "i02", "i03"]


def test_event_older_than_the_history_is_late(make_client, user):
    """Late is part of accepted, is counted, and is not in the history."""
    client = make_client(history_length=2)
    for item, at in (("i05", 5), ("i06", 6)):
        client.send({"user_id": user, "item_id": item, "timestamp": 10**12 + at})
    receipt = client.send({"user_id": user, "item_id": "i01", "timestamp": 10**12 + 1})
    assert (receipt["accepted"], receipt["late"]) == (1, 1)
    assert history(client, user) == ["i05", "i06"]
    assert client.counts()["nextitem_events_late_total"] == 1


def test_configured_types_are_the_only_ones(make_client, user):
    """The set of event types is the operator's; others are an `enum` fault that lists them."""
    client = make_client(event_types="view,wishlist")
    assert client.send({"user_id": user, "item_id": "i01", "type": "wishlist"})["accepted"] == 1
    response = client.post("/events", {"user_id": user, "item_id": "i01", "type": "click"})
    [fault] = response.json()["errors"]
    assert (fault["code"], fault["pointer"], fault["detail"]) == ("enum", "/type", "must be one of view, wishlist")


def test_users_of_one_request_each_get_their_version(client, user):
    """`history` names every user of the request."""
    other = f"{user}-other"
    receipt = client.send(
        {"user_id": user, "item_id": "i01"}, {"user_id": other, "item_id": "i01"}, {"user_id": user, "item_id": "i02"}
    )
    assert receipt["history"] == {user: 2, other: 1}


def test_thousand_events_fit_and_one_more_does_not(client, user):
    """The limit of 1,000 events is the last that passes, and the whole batch is stored."""
    events = [{"user_id": user, "item_id": "i01", "event_id": f"e{number}"} for number in range(1000)]
    assert client.send(*events)["accepted"] == 1000
    response = client.post("/events", {"events": [*events, events[0]]})
    assert (response.status_code, response.json()["errors"][0]["code"]) == (422, "too_long")
    assert client.get(f"/users/{user}/history").json()["version"] == 1000

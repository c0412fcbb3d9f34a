"""GET /status: a fault shows at once, with its reason, and nothing that a client sent."""

import os
import signal
import time
from pathlib import Path

import httpx
import onnxruntime
import pytest
from redis import Redis

from benchmarks.harness.faulty_engine import inject_faults
from service.embedded.server import EmbeddedStore


@pytest.fixture
def now(monkeypatch):
    """Statuses are as of now: nothing is kept between two of them."""
    for name in ("http.status_board.READ_EVERY_S", "health.PING_EVERY_S", "store_monitor.REFRESH_S"):
        monkeypatch.setattr(f"service.{name}", 0)


def list_problems(client):
    """Route, status, reason and count of each problem."""
    rows = client.get("/status").json()["problems"]
    return [(row["route"], row["code"], row["reason"], row["count"]) for row in rows]


def test_all_is_well(client, now):  # noqa: ARG001 - a fixture that acts
    """Readiness, workers and store of a service without problems."""
    status = client.get("/status").json()
    assert (status["status"], status["reasons"]) == ("ok", [])
    assert (status["workers"]["configured"], status["workers"]["missing"]) == (1, 0)
    assert all(worker["champion"] for worker in status["workers"]["reporting"])
    store = status["store"]
    assert (store["durable"], store["lost_events"], store["memory_limit_bytes"]) == (True, 0, None)
    assert store["memory_bytes"] > 0
    assert store["archive"]["log_length"] >= 0
    assert status["took_ms"] > 0


def test_an_engine_that_fails(make_client, now, tmp_path, monkeypatch, user):  # noqa: ARG001 - as above
    """The degraded answer is a row, with its request's id and nothing else of it; alone and in a batch."""
    session = onnxruntime.InferenceSession
    monkeypatch.setattr(session, "run", session.run)  # which is put back at the end
    fault = tmp_path / "fault"
    inject_faults(fault)
    client = make_client()
    client.recommend(user_id=user, items=["i01"])
    assert list_problems(client) == []
    fault.write_text("raise")
    answer = client.post("/recommend", {"user_id": user, "items": ["i01"]}, headers={"x-request-id": "shop-7"})
    assert answer.json()["degraded"] == "engine_unavailable"
    client.post("/recommend/batch", {"requests": [{"items": ["i01"]}, {"items": ["i02"]}]})
    status = client.get("/status")
    assert "engine_unavailable" in status.json()["reasons"]
    assert set(list_problems(client)) == {
        ("/recommend", 200, "engine_unavailable", 1),
        ("/recommend/batch", 200, "engine_unavailable", 1),
    }
    assert status.json()["problems"][-1]["request_id"] == "shop-7"
    assert user not in status.text
    assert "i01" not in status.text


def test_an_unsafe_store_and_one_that_is_gone(make_client, now, tmp_path, user):  # noqa: ARG001 - as above
    """Each has a reason of its own; the status answers without a store, too."""
    event = {"user_id": user, "item_id": "i01"}
    with EmbeddedStore(tmp_path / "data") as store:
        client = make_client(redis_url=store.url)
        with Redis.from_url(store.url) as raw:
            raw.config_set("appendfsync", "everysec")
        status = client.get("/status").json()
        assert status["reasons"] == ["store_not_durable"]
        assert status["store"]["durable"] is False
        assert client.post("/events", event).status_code == 503
        assert list_problems(client) == [("/events", 503, "store_not_durable", 1)]
        with Redis.from_url(store.url) as raw:
            raw.config_set("appendfsync", "always")
        assert client.get("/status").json()["reasons"] == []
    assert client.post("/events", event).status_code == 503
    client.post("/recommend", {"user_id": user})
    status = client.get("/status").json()
    assert (status["status"], status["store"], status["workers"]["reporting"]) == ("degraded", None, None)
    assert "store_unavailable" in status["reasons"]
    assert {row[:3] for row in list_problems(client)} == {
        ("/events", 503, "store_not_durable"),
        ("/events", 503, "store_unavailable"),
        ("/recommend", 200, "store_unavailable"),
    }


def test_a_full_service_and_a_bug(make_client, now, monkeypatch):  # noqa: ARG001 - as above
    """Refused for lack of room, and failed: rows under the route's template. What clients do wrong is no problem."""
    client = make_client()
    admission = client.app._layers._app
    client.get("/items/c4n4ry")
    client.post("/recommend", {"c4n4ry": 1})
    client.get("/c4n4ry")
    assert list_problems(client) == []
    monkeypatch.setattr(admission._requests, "maximum", 0)
    assert client.get("/users/c4n4ry/history").status_code == 503
    monkeypatch.undo()

    async def fail(*_arguments, **_options):
        raise RuntimeError("c4n4ry")

    monkeypatch.setattr(client.service.recommender, "recommend", fail)
    assert client.post("/recommend", {"items": ["i01"]}).status_code == 500
    client.service.status_board._problems._every_s = 0
    assert set(list_problems(client)) == {
        ("/users/{user_id}/history", 503, "overloaded", 1),
        ("/recommend", 500, "internal", 1),
    }
    assert "c4n4ry" not in client.get("/status").text


def test_requests_without_a_problem_carry_none(client, user):
    """The usual answer notes nothing: the log of problems is off the path of requests."""
    seen = []
    problems = client.service.problems
    note, problems.note = problems.note, lambda **given: seen.append(given)
    try:
        client.recommend(user_id=user)
        client.send({"user_id": user, "item_id": "i01"})
    finally:
        problems.note = note
    assert seen == []


def test_workers_tell_each_others_problems(start_process):
    """Whichever of two workers is asked knows what happened in the other, and that both serve."""
    process = start_process("--workers", "2", embedded=True)
    deadline = time.monotonic() + 60
    [valkey] = [pid for pid in process.family() - process.workers() if "valkey" in read_command(pid)]
    os.kill(valkey, signal.SIGSTOP)
    try:
        for number in range(8):  # new connections reach both
            httpx.post(f"{process.url}/recommend", json={"user_id": f"u{number}"}, timeout=30)
    finally:
        os.kill(valkey, signal.SIGCONT)
    total = 0
    while total < 8 and time.monotonic() < deadline:
        time.sleep(0.2)
        totals = set()
        for _ in range(6):
            status = httpx.get(f"{process.url}/status", timeout=30).json()
            totals.add(sum(row["count"] for row in status["problems"] if row["reason"] == "store_unavailable"))
        total = min(totals)
    assert total == 8
    assert (status["workers"]["configured"], status["workers"]["missing"]) == (2, 0)
    assert len(status["workers"]["reporting"]) == 2


def read_command(pid):
    """A process's command line."""
    return Path(f"/proc/{pid}/cmdline").read_text()

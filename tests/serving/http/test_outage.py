"""What is left when the store or the engine is gone: answers, with the reason, and no false receipts."""

import asyncio
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from model.contract.query import encode_question
from model.contract.sessions import Sessions
from service.embedded.server import EmbeddedStore
from service.errors import StoreUnavailable
from service.http.disconnect import DISCONNECT, DisconnectSignal
from service.inference.engine import Ranked
from service.process.server import DrainingServer, configure
from service.ranking.batcher import Observers
from service.store.circuit_breaker import CALLS


@pytest.fixture
def own_store(tmp_path):
    """A store that a test may stop and start."""
    store = EmbeddedStore(tmp_path / "data")
    store.start()
    yield store
    store.stop()


def fallbacks(client, reason):
    """How many answers were degraded for that reason."""
    return client.counts()[f'nextitem_fallbacks_total{{reason="{reason}"}}']


def test_store_outage_and_return(make_client, ask_in_time, own_store, user):
    """While the store is killed, /recommend answers and /events refuses; when it is back, all goes on."""
    client = make_client(redis_url=own_store.url)
    client.send({"user_id": user, "item_id": "i01", "event_id": "e-1"})
    os.kill(own_store.pid, signal.SIGSTOP)  # accepts connections, answers nothing
    answers = ask_in_time(lambda: client.recommend(user_id=user), within_s=1)
    for answer in answers:
        assert (answer["source"], answer["degraded"], answer["history"]) == ("popular", "store_unavailable", None)
        assert answer["count"] == 10
    os.kill(own_store.pid, signal.SIGCONT)

    os.kill(own_store.pid, signal.SIGKILL)
    answer = client.recommend(user_id=user, items=["i02"])
    assert (answer["source"], answer["degraded"]) == ("model", "store_unavailable")
    assert answer["items"] == client.recommend(items=["i02"])["items"]
    assert client.recommend(user_id=user, items=["unheard-of"])["source"] == "popular"
    assert client.post("/recommend", {"user_id": user, "min_history_version": 1}).status_code == 409

    for refused in (
        client.post("/events", {"user_id": user, "item_id": "i02", "event_id": "e-2"}),
        client.get(f"/users/{user}/history"),
    ):
        assert refused.status_code == 503
        assert refused.headers["retry-after"] in {"1", "2", "3"}
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["type"] == "urn:nextitem:problem:store-unavailable"
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "degraded", "reasons": ["store_unavailable"]})
    assert fallbacks(client, "store_unavailable") == len(answers) + 2
    assert sum(count for name, count in client.counts().items() if name.startswith("nextitem_store_errors_total")) >= 5

    # The same server, on the same socket: what a restart by a supervisor looks like.
    socket = Path(own_store.url.removeprefix("unix://"))
    own_store.stop()
    own_store.start()
    socket.parent.mkdir()
    socket.symlink_to(own_store.url.removeprefix("unix://"))
    try:
        receipt = client.send({"user_id": user, "item_id": "i02", "event_id": "e-2"})
        assert receipt["history"] == {user: 2}
        answer = client.recommend(user_id=user)
        assert (answer["source"], answer["degraded"], answer["history"]["version"]) == ("model", None, 2)
        time.sleep(1)  # the probe asks once a second
        assert client.get("/health/ready").json() == {"status": "ok", "reasons": []}
    finally:
        socket.unlink()
        socket.parent.rmdir()


def test_store_that_does_not_answer_is_asked_no_more(make_client, monkeypatch, own_store, user):
    """After twenty timeouts answers are immediate and events are refused at once; one probe ends it."""
    monkeypatch.setattr("service.store.circuit_breaker.PAUSE_S", 3600)
    client = make_client(redis_url=own_store.url)
    client.send({"user_id": user, "item_id": "i01"})
    os.kill(own_store.pid, signal.SIGSTOP)
    event = {"user_id": user, "item_id": "i02", "event_id": "e-2"}

    async def send_all():
        return await asyncio.gather(*(client.http.post("/events", json=event) for _ in range(20)))

    def count_calls():
        counts = client.counts()
        return [counts[f'nextitem_store_duration_seconds_count{{op="{op}"}}'] for op in ("read", "append")]

    assert {receipt.status_code for receipt in client.run(send_all())} == {503}
    answers = [client.recommend(user_id=user, timeout_ms=150) for _ in range(25)]
    assert {answer["degraded"] for answer in answers} <= {"store_unavailable", "deadline"}
    before = count_calls()
    answers = [client.recommend(user_id=user) for _ in range(5)]
    assert {answer["degraded"] for answer in answers} == {"store_unavailable"}
    assert min(answer["took_ms"] for answer in answers) < 1000  # of the 2000 that they had
    assert client.post("/events", event).headers["retry-after"] in {"1", "2", "3"}
    assert count_calls() == before

    os.kill(own_store.pid, signal.SIGCONT)
    assert client.recommend(user_id=user)["degraded"] == "store_unavailable"
    monkeypatch.setattr("service.store.circuit_breaker.PAUSE_S", 0)
    assert client.send(event)["history"] == {user: 2}
    assert client.recommend(user_id=user)["source"] == "model"


def test_erasures_that_fail_keep_no_events_out(make_client, monkeypatch, user):
    """They have a breaker of their own: neither their failures nor a long one that probes refuses an event."""
    client = make_client()
    event = {"user_id": user, "item_id": "i01"}

    async def time_out(_):
        raise StoreUnavailable(kind="timeout")

    monkeypatch.setattr(client.service.store, "erase", time_out)
    assert {client.request("DELETE", f"/users/{user}").status_code for _ in range(CALLS)} == {503}
    assert not client.service.erase_breaker.closed
    assert client.send(event)["history"] == {user: 1}
    release, begun = asyncio.Event(), asyncio.Event()

    async def take_long(_):
        begun.set()
        await release.wait()

    async def send_meanwhile():
        erasure = asyncio.create_task(client.http.delete(f"/users/{user}"))
        await begun.wait()
        receipt = await client.http.post("/events", json=event)
        release.set()
        return receipt.status_code, (await erasure).status_code

    monkeypatch.setattr("service.store.circuit_breaker.PAUSE_S", 0)
    monkeypatch.setattr(client.service.store, "erase", take_long)
    assert client.run(send_meanwhile()) == (200, 204)


def test_service_starts_without_its_store(make_client, tmp_path, user):
    """A store that was never there degrades answers from the first one on."""
    client = make_client(redis_url=f"unix://{tmp_path}/nobody.sock")
    assert client.get("/health/ready").json() == {"status": "degraded", "reasons": ["store_unavailable"]}
    assert client.recommend(user_id=user)["degraded"] == "store_unavailable"
    assert client.recommend(items=["i01"])["degraded"] is None


@pytest.mark.parametrize("broken", ["raises", "not a number", "infinite", "no item", "short"])
def test_engine_that_fails_is_replaced_by_popular_items(make_client, monkeypatch, user, broken):
    """A run that raises or answers nonsense gives popular items, without what was seen or excluded, until it works."""
    client = make_client()
    client.send({"user_id": user, "item_id": "i02"})
    engine = client.service.model.engine
    session = engine._session

    class Broken:
        def run(self, names, feed):
            indexes, scores = session.run(names, feed)
            match broken:
                case "raises":
                    raise RuntimeError("CUDA failure 700")
                case "not a number":
                    scores[-1, -1] = np.nan
                case "infinite":
                    scores[-1, 0] = np.inf
                case "no item":
                    indexes[-1, 0] = 21
                case "short":
                    indexes = indexes[:, :-1]
            return indexes, scores

    monkeypatch.setattr(engine, "_session", Broken())
    answer = client.recommend(user_id=user, exclude_item_ids=["i12"], k=3)
    assert (answer["source"], answer["degraded"]) == ("popular", "engine_unavailable")
    assert [item["item_id"] for item in answer["items"]] == ["a/b", "i09", "100%"]
    assert client.get("/health/ready").json() == {"status": "degraded", "reasons": ["engine_unavailable"]}
    assert fallbacks(client, "engine_unavailable") == 1
    monkeypatch.setattr(engine, "_session", session)
    assert client.recommend(user_id=user)["source"] == "model"
    assert client.get("/health/ready").json() == {"status": "ok", "reasons": []}


def test_engine_that_fails_is_replaced_by_neighbours(make_client, broken_bundle, monkeypatch, user):
    """A bundle with sessions answers by those most like the history, without what was seen or excluded."""
    sessions = Sessions(  # of items i02, i07 and i11; of i02, i04 and i12; of i09: i01 is the seventh of 20 items
        item_count=20,
        starts=np.array([0, 3, 6, 7]),
        items=np.array([8, 13, 17, 8, 10, 18, 15], dtype=np.int32),
        moments=np.zeros(3, dtype=np.int64),
    )
    client = make_client(bundle=broken_bundle("sessions.npy", sessions.to_bytes()))
    client.send({"user_id": user, "item_id": "i02"})
    assert client.recommend(user_id=user)["source"] == "model"

    def fail(_names, _feed):
        raise RuntimeError("CUDA failure 700")

    monkeypatch.setattr(client.service.model.engine, "_session", SimpleNamespace(run=fail))
    answer = client.recommend(user_id=user, items=["i07"], exclude_item_ids=["i04"], k=3)
    assert (answer["source"], answer["degraded"]) == ("neighbours", "engine_unavailable")
    assert [item["item_id"] for item in answer["items"]] == ["i11", "i12", "a/b"]  # after the sessions the popular
    assert fallbacks(client, "engine_unavailable") == 1
    candidates = client.recommend(user_id=user, candidate_item_ids=["i09", "i12", "i11", "i11"], k=2)
    assert {item["item_id"] for item in candidates["items"]} == {"i11", "i12"}
    assert client.recommend(user_id="nobody-yet")["source"] == "popular"


def test_one_odd_request_does_not_fail_its_batch(make_client, monkeypatch):
    """What goes wrong with one question is its own answer; the others of the batch get theirs."""
    client = make_client()

    def fail_for_one(vocabulary, **question):
        if "i07" in question["history"]:
            raise ZeroDivisionError
        return encode_question(vocabulary, **question)

    monkeypatch.setattr("service.ranking.pipeline.encode_question", fail_for_one)

    async def ask_all():
        histories = [["i01"], ["i02"], ["i07"], ["i03"], ["i04"]]
        posts = (client.http.post("/recommend", json={"items": history}) for history in histories)
        return [response.status_code for response in await asyncio.gather(*posts)]

    assert client.run(ask_all()) == [200, 200, 500, 200, 200]


def test_dead_batcher_turns_readiness_red_and_answers_are_popular(make_client, user):
    """Without its batcher the service is not ready, says why, and still answers from the ladder."""
    client = make_client()

    def fail(_size):
        raise ZeroDivisionError

    client.service.recommender.variants.champion.batcher._observers = Observers(on_batch=fail)
    answer = client.recommend(user_id=user, items=["i01"])
    assert (answer["source"], answer["degraded"]) == ("popular", "engine_unavailable")
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()) == (503, {"status": "degraded", "reasons": ["batcher_stopped"]})
    answer = client.recommend(user_id=user, items=["i01"])
    assert (answer["source"], answer["degraded"]) == ("popular", "engine_unavailable")


def test_readiness_while_starting_and_draining(make_client):
    """While the service is in either phase, readiness is 503 and says which, and liveness stays 200."""
    client = make_client()
    for phase in ("starting", "draining"):
        client.service.health.phase = phase
        response = client.get("/health/ready")
        assert (response.status_code, response.json()) == (503, {"status": phase, "reasons": []})
        assert client.get("/health/live").status_code == 200
    client.service.health.phase = "serving"


def test_told_to_stop_it_is_draining_at_once(make_client):
    """From the signal on readiness is 503, while it still answers, and asks clients to go elsewhere next."""
    client = make_client()
    config = configure(client.service.settings, client.app)
    server = DrainingServer(config, lambda: None, client.service.health, drain_delay_s=60)
    server.started = True
    response = client.get("/health/ready")
    assert (response.status_code, "connection" in response.headers) == (200, False)
    server.handle_exit(signal.SIGTERM, None)
    assert (client.run(server.on_tick(1)), server.force_exit) == (False, False)
    response = client.get("/health/ready")
    assert (response.status_code, response.json()) == (503, {"status": "draining", "reasons": []})
    answer = client.post("/recommend", {"items": ["i01"]})
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    server.handle_exit(signal.SIGTERM, None)
    assert (client.run(server.on_tick(2)), server.force_exit) == (True, True)


def test_departed_client_is_not_computed_for(make_client, monkeypatch):
    """A client that closes its connection while its request waits is dropped before the model runs."""
    client = make_client(max_batch=1)
    engine = client.service.model.engine
    rank, seen = type(engine).rank, []

    def slow_rank(self, feed) -> Ranked:
        seen.append(len(feed["item_ids"]))
        time.sleep(0.15)
        return rank(self, feed)

    monkeypatch.setattr(type(engine), "rank", slow_rank)

    async def ask(body, departs_after=None):
        """One raw ASGI exchange, whose client leaves after some seconds, if at all."""
        sent, departure = [], DisconnectSignal()
        if departs_after is not None:
            asyncio.get_running_loop().call_later(departs_after, departure.notify)

        async def receive():
            return {"type": "http.request", "body": body}

        async def send(message):
            sent.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/recommend", "raw_path": b"/recommend", "query_string": b""}
        more = {"headers": headers, "http_version": "1.1", "scheme": "http", "state": {DISCONNECT: departure}}
        await client.app(scope | more, receive, send)
        return sent

    async def three():
        busy = [asyncio.create_task(ask(b'{"items":["i01"]}')) for _ in range(2)]
        await asyncio.sleep(0.05)
        left = await ask(b'{"items":["i02"]}', departs_after=0.01)
        return left, await asyncio.gather(*busy)

    left, served = client.run(three())
    assert left == []
    assert [sent[0]["status"] for sent in served] == [200, 200]
    assert len(seen) == 2
    assert (
        client.counts()['nextitem_http_request_duration_seconds_count{code="499",method="POST",route="/recommend"}']
        == 1
    )

"""Stores that are slow, silent or refuse: /recommend answers 200 in time, /events acknowledges nothing."""

import asyncio
import math
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from redis import Redis

from service.errors import StoreUnavailable
from service.store.circuit_breaker import CALLS
from service.store.redis_keys import name_keys

FULL = b"-ERR max number of clients reached\r\n"
REFUSALS = (
    b"LOADING Redis is loading the dataset in memory",
    b"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    b"READONLY You can't write against a read only replica.",
    b"OOM command not allowed when used memory > 'maxmemory'.",
    b"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    b"NOPERM this user has no permissions to run the 'get' command",
    b"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
)


class Impostor(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A server on a unix socket; `meet` is what it does with each connection."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, path: str, meet: Callable[[socket.socket], None]):
        super().__init__(path, socketserver.BaseRequestHandler)
        self._meet = meet

    def finish_request(self, request, _client_address):
        with suppress(OSError):  # whoever was there has left
            self._meet(request)


@pytest.fixture
def pretend(tmp_path_factory):
    """Run an impostor; the URL of it."""
    servers = []

    def start(meet):
        path = str(tmp_path_factory.mktemp("s") / "s")
        server = Impostor(path, meet)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"unix://{path}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def refuse_with(message):
    """Answer every command with one error."""
    return answer_with(b"-" + message + b"\r\n")


def answer_with(reply):
    """Answer every command with one reply."""

    def meet(connection):
        with connection.makefile("rb") as commands:
            while line := commands.readline():
                for _ in range(int(line[1:])):
                    commands.read(int(commands.readline()[1:]) + 2)
                connection.sendall(reply)

    return meet


def delay(url, seconds):
    """Pass everything on to a store, late."""

    def meet(connection):
        with socket.socket(socket.AF_UNIX) as store:
            store.connect(url.removeprefix("unix://"))
            threading.Thread(target=pass_on, args=(store, connection), daemon=True).start()
            pass_on(connection, store, seconds)

    return meet


def pass_on(source, target, seconds=0.0):
    """Copy what comes from one to the other."""
    with suppress(OSError):  # one of them has left
        while data := source.recv(65_536):
            time.sleep(seconds)
            target.sendall(data)


@pytest.fixture
def ask(ask_in_time, user):
    """Ask five times and until an answer is in time."""

    def ask(client, timeout_ms=300):
        def question():
            return client.recommend(user_id=user, items=["i02"], timeout_ms=timeout_ms)

        return [question() for _ in range(4)] + ask_in_time(question, within_s=timeout_ms / 1000)

    return ask


@pytest.mark.parametrize("message", REFUSALS, ids=lambda message: message.split()[0].decode())
def test_store_that_refuses(make_client, ask, pretend, user, message):
    """The model answers from the items that the request names, events are not acknowledged, and both are counted."""
    client = make_client(redis_url=pretend(refuse_with(message)))
    answers = ask(client)
    assert {(answer["source"], answer["degraded"]) for answer in answers} == {("model", "store_unavailable")}
    response = client.post("/events", {"user_id": user, "item_id": "i01"})
    assert (response.status_code, response.headers["retry-after"] in {"1", "2", "3"}) == (503, True)
    assert client.counts()['nextitem_store_errors_total{kind="refused"}'] >= 6


def test_silent_store(make_client, ask, pretend, user):
    """A store that takes everything and says nothing costs its share of the time, and no answer."""
    client = make_client(redis_url=pretend(lambda connection: pass_on(connection, connection, 3600)))
    answers = ask(client)
    assert {answer["degraded"] for answer in answers} <= {"store_unavailable", "deadline"}
    assert client.post("/events", {"user_id": user, "item_id": "i01"}).status_code == 503
    assert client.counts()['nextitem_store_errors_total{kind="timeout"}'] >= 2


def test_store_that_hangs_up(make_client, ask, pretend, user):
    """A store that closes every connection at the first word."""
    client = make_client(redis_url=pretend(lambda connection: connection.recv(1)))
    answers = ask(client)
    assert {(answer["source"], answer["degraded"]) for answer in answers} == {("model", "store_unavailable")}
    assert client.post("/events", {"user_id": user, "item_id": "i01"}).status_code == 503
    assert client.counts()['nextitem_store_errors_total{kind="connection"}'] >= 6


def test_slow_store(make_client, ask, pretend, service_store, user):
    """Somewhat slow, its histories are waited for; too slow for the request, it is answered without them, in time."""
    client = make_client(redis_url=pretend(delay(service_store.url, 0.15)))
    client.send({"user_id": user, "item_id": "i01"})
    patient = [client.recommend(user_id=user, timeout_ms=2000)["history"] for _ in range(5)]
    assert 1 in {history["length"] for history in patient if history}  # a machine that is slow, too, may miss some
    answers = ask(client, timeout_ms=200)
    assert {answer["history"] for answer in answers} == {None}
    assert "store_unavailable" in {answer["degraded"] for answer in answers}


def test_slow_store_does_not_stop_events(make_client, pretend, service_store, user):
    """An append has a second: it is acknowledged, though questions cannot wait for as long."""
    client = make_client(redis_url=pretend(delay(service_store.url, 0.3)))
    receipt = client.send({"user_id": user, "item_id": "i01", "event_id": "e"})
    assert receipt["history"] == {user: 1}
    assert client.recommend(user_id=user)["degraded"] == "store_unavailable"


def test_full_server_closes_every_connection(make_client, pretend, user, caplog):
    """As at maxclients: answers go on, events are refused, the breakers open, and the log says so in a few lines."""
    client = make_client(redis_url=pretend(lambda connection: connection.sendall(FULL)))
    for _ in range(2 * CALLS):
        answer = client.recommend(user_id=user, items=["i02"])
        assert (answer["source"], answer["degraded"]) == ("model", "store_unavailable")
        assert client.post("/events", {"user_id": user, "item_id": "i01"}).status_code == 503
    assert client.get("/health/ready").json()["reasons"] == ["store_unavailable"]
    counts = client.counts()
    failed = sum(counts[f'nextitem_store_errors_total{{kind="{kind}"}}'] for kind in ("connection", "refused"))
    assert CALLS <= failed < 4 * CALLS
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) <= 8
    for calls in ("reads", "appends"):
        assert any(line.startswith(f"Circuit breaker open for store {calls}: ") for line in said)
        assert any(line.startswith(f"Store {calls} fail (") for line in said)


ODD = {
    "nil": b"$-1\r\n",
    "number": b":7\r\n",
    "empty": b"$0\r\n\r\n",
    "list of nothing": b"*2\r\n$-1\r\n*-1\r\n",
    "entry with a time of 16 digits": b"*1\r\n$29\r\n1763719498123456 i view - e-1\r\n",
    "endless array": b"*1000000\r\n",  # of 2 ** 31 - 1, one list is 16 GiB, through which the garbage collector goes
}


@pytest.mark.parametrize("reply", ODD.values(), ids=ODD)
def test_store_that_answers_anything(make_client, ask, pretend, user, reply):
    """One reply to whatever is asked is no answer: nothing of it reaches a client, nor ends anything in 500."""
    client = make_client(redis_url=pretend(answer_with(reply)))
    ask(client)
    assert client.recommend(items=["i02"])["degraded"] is None
    assert client.post("/events", {"user_id": user, "item_id": "i01"}).status_code == 503
    assert client.get(f"/users/{user}/history").status_code == 503
    assert client.get("/health/ready").status_code == 200
    assert math.isnan(client.counts()["nextitem_store_memory_bytes"])


def test_damaged_user_hurts_nobody_else(make_client, service_store, user):
    """In a batch the others have their histories; in a request the others' events are stored, and each is told so."""
    client = make_client()
    others = [f"{user}-{number}" for number in range(3)]
    client.send(*({"user_id": other, "item_id": "i01"} for other in others))
    keys = name_keys(user)
    with Redis.from_url(service_store.url) as raw:
        raw.set(keys.history, "not ours")
        try:
            asked = [{"user_id": who, "timeout_ms": 2000} for who in (others[0], user, *others[1:])]
            answers = client.post("/recommend/batch", {"requests": asked}).json()["responses"]
            receipt = client.send(
                {"user_id": others[0], "item_id": "i02"},
                {"user_id": user, "item_id": "i02"},
                {"user_id": others[1], "item_id": "i02"},
            )
            export = client.get(f"/users/{user}/history").status_code
            assert client.request("DELETE", f"/users/{user}").status_code == 204  # which mends it
        finally:
            raw.delete(keys.history)
    assert [answer["degraded"] for answer in answers] == [None, "store_unavailable", None, None]
    assert [answer["source"] for answer in answers] == ["model", "popular", "model", "model"]
    assert (receipt["accepted"], receipt["history"]) == (2, {others[0]: 2, others[1]: 2})
    [refused] = receipt["rejected"]
    assert (refused["index"], refused["pointer"], refused["code"]) == (1, "/user_id", "store_damaged")
    assert export == 503
    assert client.recommend(user_id=user)["degraded"] is None
    counts = client.counts()
    assert counts['nextitem_store_errors_total{kind="damaged"}'] == 3
    assert counts['nextitem_events_total{result="rejected",type="view"}'] == 1


def test_erasures_that_fail_keep_no_events_out(make_client, user, monkeypatch):
    """An erasure takes up to half a minute: it is neither counted with the appends nor what they wait for."""
    client = make_client()
    store = client.service.store
    event = {"user_id": user, "item_id": "i01"}
    erase, append = store.erase, store.append

    async def fail(*_arguments):
        raise StoreUnavailable(kind="timeout")

    monkeypatch.setattr(store, "erase", fail)
    for _ in range(CALLS):
        assert client.request("DELETE", f"/users/{user}").status_code == 503
    client.send(event)
    monkeypatch.setattr(store, "erase", erase)
    monkeypatch.setattr(store, "append", fail)
    for _ in range(CALLS):
        assert client.post("/events", event).status_code == 503
    monkeypatch.setattr(store, "append", append)
    monkeypatch.setattr("service.store.circuit_breaker.PAUSE_S", 0)
    slow = asyncio.Event()

    async def erase_slowly(user_id):
        await slow.wait()
        await erase(user_id)

    async def post_beside_an_erasure():
        monkeypatch.setattr(store, "erase", erase_slowly)
        erasure = asyncio.create_task(client.http.request("DELETE", f"/users/{user}-other"))
        await asyncio.sleep(0.05)
        posted = await client.http.post("/events", json=event)
        slow.set()
        return posted.status_code, (await erasure).status_code

    assert client.run(post_beside_an_erasure()) == (200, 204)


def test_log_tells_of_a_store_that_is_away_at_the_start(make_client, tmp_path, caplog):
    """Before anybody asks for anything."""
    make_client(redis_url=f"unix://{tmp_path}/nobody.sock")
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said.startswith("Store reads fail (connection, ConnectionError): it cannot be reached.")

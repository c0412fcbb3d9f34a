"""Stores that are slow, silent or refuse: /recommend answers 200 in time, /events acknowledges nothing."""

import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

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
        """One connection."""
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

    def meet(connection):
        with connection.makefile("rb") as commands:
            while line := commands.readline():
                for _ in range(int(line[1:])):
                    commands.read(int(commands.readline()[1:]) + 2)
                connection.sendall(b"-" + message + b"\r\n")

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


def ask_in_time(client, user, timeout_ms=300):
    """Ask five times; the answers, of which at least the quickest must be in time."""
    took_s, answers = [], []
    for _ in range(5):
        started = time.perf_counter()
        answers.append(client.recommend(user_id=user, items=["i02"], timeout_ms=timeout_ms))
        took_s.append(time.perf_counter() - started)
    assert min(took_s) < timeout_ms / 1000
    return answers


@pytest.mark.parametrize("message", REFUSALS, ids=lambda message: message.split()[0].decode())
def test_store_that_refuses(make_client, pretend, user, message):
    """The model answers from the items that the request names, events are not acknowledged, and both are counted."""
    client = make_client(redis_url=pretend(refuse_with(message)))
    answers = ask_in_time(client, user)
    assert {(answer["source"], answer["degraded"]) for answer in answers} == {("model", "store_unavailable")}
    response = client.post("/events", {"user_id": user, "item_id": "i01"})
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert client.counts()['nextitem_store_errors_total{kind="refused"}'] >= 6


def test_silent_store(make_client, pretend, user):
    """A store that takes everything and says nothing costs its share of the time, and no answer."""
    client = make_client(redis_url=pretend(lambda connection: pass_on(connection, connection, 3600)))
    answers = ask_in_time(client, user)
    assert {answer["degraded"] for answer in answers} <= {"store_unavailable", "deadline"}
    assert client.post("/events", {"user_id": user, "item_id": "i01"}).status_code == 503
    assert client.counts()['nextitem_store_errors_total{kind="timeout"}'] >= 2


def test_store_that_hangs_up(make_client, pretend, user):
    """A store that closes every connection at the first word."""
    client = make_client(redis_url=pretend(lambda connection: connection.recv(1)))
    answers = ask_in_time(client, user)
    assert {(answer["source"], answer["degraded"]) for answer in answers} == {("model", "store_unavailable")}
    assert client.post("/events", {"user_id": user, "item_id": "i01"}).status_code == 503
    assert client.counts()['nextitem_store_errors_total{kind="connection"}'] >= 6


def test_slow_store(make_client, pretend, service_store, user):
    """Somewhat slow, its histories are waited for; too slow for the request, it is answered without them, in time."""
    client = make_client(redis_url=pretend(delay(service_store.url, 0.15)))
    client.send({"user_id": user, "item_id": "i01"})
    assert client.recommend(user_id=user, timeout_ms=2000)["history"]["length"] == 1
    answers = ask_in_time(client, user, timeout_ms=200)
    assert {answer["history"] for answer in answers} == {None}
    assert "store_unavailable" in {answer["degraded"] for answer in answers}


def test_slow_store_does_not_stop_events(make_client, pretend, service_store, user):
    """An append has a second: it is acknowledged, though questions cannot wait for as long."""
    client = make_client(redis_url=pretend(delay(service_store.url, 0.3)))
    receipt = client.send({"user_id": user, "item_id": "i01", "event_id": "e"})
    assert receipt["history"] == {user: 1}
    assert client.recommend(user_id=user)["degraded"] == "store_unavailable"

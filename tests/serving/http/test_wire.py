"""HTTP on the wire: what is no HTTP, too large or too slow is refused by the service itself, and harms nobody else."""

import asyncio
import contextlib
import gc
import json
import math
import re
import selectors
import socket
import time
from http.client import HTTPResponse

import httpx
import pytest
import uvicorn
from starlette.requests import ClientDisconnect, Request
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from service.errors import Problem
from service.http import cycle, protocol
from service.http.disconnect import cancel_on_disconnect
from service.http.head import HEAD_MAX_BYTES, HEADERS_MAX
from service.http.protocol import (
    BODY_LIMIT_S,
    HEAD_LIMIT_S,
    MESSAGE_MAX_BYTES,
    PIPELINE_MAX,
)

CANARY = b"c4n4ry"
PATIENCE_S = 60
"""How long a test in this process waits for what should come at once: machines may be slow."""
HOST = b"Host: localhost\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\n" + HOST
POST = b"POST /events HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def running(start_once):
    """A service with two workers, which has told its log nothing of all this at the end."""
    process = start_once("--workers", "2", "--log-level", "debug")
    yield process
    process.close()
    assert CANARY.decode() not in str(process.log)
    assert {entry["level"] for entry in process.log} <= {"debug", "info"}


@pytest.fixture
def connect(running):
    """Open sockets to the service; closed after the test."""
    opened = []

    def open_socket():
        host, port = running.url.removeprefix("http://").split(":")
        opened.append(socket.create_connection((host, int(port)), timeout=120))
        return opened[-1]

    yield open_socket
    for connection in opened:
        connection.close()


@pytest.fixture
def exchange(connect):
    """Send bytes and give every answer until the service closes: (status, headers, body)."""

    def send(*pieces):
        connection = connect()
        for piece in pieces:
            connection.sendall(piece)
        return read_answers(connection)

    return send


def read_answers(connection):
    """All answers until the end of the connection."""
    content = b""
    while received := connection.recv(65_536):
        content += received
    answers = []
    while content:
        head, content = content.split(b"\r\n\r\n", 1)
        lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        size = int(headers["content-length"])
        answers.append((int(lines[0].split()[1]), headers, content[:size]))
        content = content[size:]
    return answers


def check_refusal(answer, status, slug):
    """The answer is that problem, silent about what was sent, and the last of its connection."""
    code, headers, body = answer
    document = json.loads(body)
    assert (code, document["status"], document["type"]) == (status, status, f"urn:nextitem:problem:{slug}")
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    assert headers["x-request-id"] == document["request_id"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers
    assert CANARY not in body + str(headers).encode()


MALFORMED = {
    "no HTTP": b"c4n4ry\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)),
    "no version": b"GET /health/live\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2.0": LIVE.replace(b"1.1", b"2.0") + b"\r\n",
    "HTTP/0.9": LIVE.replace(b"1.1", b"0.9") + b"\r\n",
    "lower case": LIVE.replace(b"GET", b"get") + b"\r\n",
    "unknown method": LIVE.replace(b"GET", b"C4N4RY") + b"\r\n",
    "no Host": b"GET /health/live HTTP/1.1\r\n\r\n",
    "no Host, 1.0": b"GET /health/live HTTP/1.0\r\n\r\n",
    "two Hosts": LIVE + HOST + b"\r\n",
    "empty Host": b"GET /health/live HTTP/1.1\r\nHost:\r\n\r\n",
    "path in Host": b"GET /metrics HTTP/1.1\r\nHost: c4n4ry/health/live?\r\n\r\n",
    "user in Host": b"GET /metrics HTTP/1.1\r\nHost: c4n4ry@x\r\n\r\n",
    "target @": b"GET @c4n4ry HTTP/1.1\r\n" + HOST + b"\r\n",
    "target *": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "target without /": b"GET health/live HTTP/1.1\r\n" + HOST + b"\r\n",
    "target with user": b"GET http://c4n4ry@x/health/live HTTP/1.1\r\n" + HOST + b"\r\n",
    "target of another scheme": b"GET ftp://x/health/live HTTP/1.1\r\n" + HOST + b"\r\n",
    "target with fragment": b"GET /health/live#c4n4ry HTTP/1.1\r\n" + HOST + b"\r\n",
    "target with raw bytes": b"GET /items/\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
    "target with space": b"GET /items/a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "target with DEL": b"GET /items/\x7f HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT c4n4ry:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "bare LF": b"GET /health/live HTTP/1.1\nHost: x\n\n",
    "bare CR": LIVE + b"A: c4n4ry\rB: c\r\n\r\n",
    "NUL in a header": LIVE + b"A: c4n4ry\0\r\n\r\n",
    "folded header": LIVE + b"A: b\r\n c4n4ry\r\n\r\n",
    "space before colon": LIVE + b"Content-Length : 5\r\n\r\nhello",
    "header without name": LIVE + b": c4n4ry\r\n\r\n",
    "header without colon": LIVE + b"c4n4ry\r\n\r\n",
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "one length twice": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "list of lengths": POST + b"Content-Length: 2, 2\r\n\r\n{}",
    "length -1": POST + b"Content-Length: -1\r\n\r\n",
    "length +2": POST + b"Content-Length: +2\r\n\r\n{}",
    "length 0x2": POST + b"Content-Length: 0x2\r\n\r\n{}",
    "length 2^66": POST + b"Content-Length: 73786976294838206464\r\n\r\n{}",
    "empty length": POST + b"Content-Length:\r\n\r\n{}",
    "gzip, chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks in 1.0": CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n",
    "chunk of no size": CHUNKED + b"c4n4ry\r\n{}\r\n0\r\n\r\n",
    "chunk of 2^68": CHUNKED + b"FFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n",
    "chunk of -1": CHUNKED + b"-1\r\n{}\r\n0\r\n\r\n",
    "chunk longer than its size": CHUNKED + b"2\r\n{}c4n4ry\r\n0\r\n\r\n",
    "chunk size ended by LF": CHUNKED + b"2\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_http(exchange, content):
    """400 as a problem, once, and the connection ends: what follows on it is read as nothing."""
    [answer] = exchange(content + LIVE + b"\r\n")
    check_refusal(answer, 400, "malformed-request")


@pytest.mark.parametrize(
    "head",
    [
        LIVE + b"A: " + b"a" * HEAD_MAX_BYTES + b"\r\n\r\n",
        LIVE + b"A: " + b"a" * 1_000_000,
        b"GET /" + b"a" * HEAD_MAX_BYTES + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /" + b"a" * 1_000_000,
        LIVE + b"A: b\r\n" * HEADERS_MAX + b"\r\n",
        LIVE + b"Cookie: c4n4ry\r\n" * 20_000 + b"\r\n",
    ],
    ids=["value", "endless value", "target", "endless target", "headers", "20,000 headers"],
)
def test_heads_too_large(exchange, head):
    """431, whole or not."""
    [answer] = exchange(head)
    check_refusal(answer, 431, "head-too-large")


@pytest.mark.parametrize(
    ("content", "statuses"),
    [
        (LIVE + b"A: " + b"a" * (HEAD_MAX_BYTES - 200) + b"\r\nConnection: close\r\n\r\n", [200]),
        (LIVE + b"A: b\r\n" * (HEADERS_MAX - 2) + b"Connection: close\r\n\r\n", [200]),
        (b"\r\n\r\n" + LIVE + b"Connection: close\r\n\r\n", [200]),
        (b"GET http://other/health/live HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", [200]),
        (b"GET /health/live HTTP/1.1\r\nhOsT: [::1]:8000\r\nConnection: close\r\n\r\n", [200]),
        (LIVE.replace(b"/health", b"//c4n4ry/health") + b"Connection: close\r\n\r\n", [404]),
        (LIVE.replace(b"/health", b"/docs/../health") + b"Connection: close\r\n\r\n", [404]),
        (LIVE.replace(b"1.1", b"1.0") + b"\r\n", [200]),
        (LIVE + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\nc4n4ry", [200]),
        (LIVE + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", [200]),
        (CHUNKED.replace(HOST, HOST + b"Connection: close\r\n") + b"2;a=b\r\n{}\r\n0\r\n\r\n", [422]),
        (2 * (LIVE + b"\r\n") + b"c4n4ry\r\n\r\n", [200, 200, 400]),
        (LIVE + b"\r\n" + LIVE + b"A: " + b"a" * HEAD_MAX_BYTES + b"\r\n\r\n", [200, 431]),
        (POST + b"Content-Length: 300000\r\n\r\n" + b" " * 300_000 + b"c4n4ry\r\n\r\n", [413, 400]),
        (POST + b"Content-Length: 99999999\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", [413]),
    ],
    ids=[
        "31.8 KiB",
        "100 headers",
        "blank lines",
        "absolute",
        "IPv6 host",
        "no host in a path",
        "dots are not resolved",
        "1.0",
        "h2c",
        "websocket",
        "chunks",
        "pipeline",
        "pipelined large head",
        "after a large body",
        "413 before reading",
    ],
)
def test_what_is_http(exchange, content, statuses):
    """What RFC 9112 allows is served, in the order sent, up to the first fault."""
    assert [status for status, _, _ in exchange(content)] == statuses


def test_pipelines_are_served_in_order_up_to_a_limit(exchange):
    """As many requests as may wait are answered in order; of 10,000 at once a few, and then the client is refused."""
    numbered = [LIVE.replace(b"live", b"%d" % number) + b"\r\n" for number in range(PIPELINE_MAX)]
    answers = exchange(LIVE + b"\r\n", *numbered, LIVE + b"Connection: close\r\n\r\n")
    assert [status for status, _, _ in answers] == [200, *[404] * PIPELINE_MAX, 200]
    *answered, refusal = exchange((LIVE + b"\r\n") * 10_000)
    assert [status for status, _, _ in answered] == [200] * (PIPELINE_MAX + 1)
    check_refusal(refusal, 400, "malformed-request")


LEFT = {
    "pipeline": (LIVE + b"\r\n") * 10_000,
    "pipelined bodies": (POST + b"Content-Length: 9\r\n\r\n")
    + b" " * 9
    + LIVE
    + b"\r\n"
    + POST
    + b"Content-Length: 9\r\n\r\n",
    "no HTTP": b"c4n4ry\r\n\r\n",
    "stalled head": LIVE,
    "stalled body": POST + b"Content-Length: 100000\r\n\r\n" + b" " * 50_000,
    "broken chunk": CHUNKED + b"2\r\n{}c4n4ry",
    "no JSON": POST + b"Content-Length: 1\r\n\r\n{",
    "path of a user": b"GET /users/c4n4ry/history?a=b HTTP/1.1\r\n" + HOST + b"\r\n",
}


@pytest.mark.parametrize("waits", [True, False], ids=["to the end", "left at once"])
@pytest.mark.parametrize("content", LEFT.values(), ids=LEFT)
def test_what_is_refused_leaves_no_cycles(make_client, monkeypatch, content, waits):
    """Memory of refused requests is free when they end: none of it waits for the collector of cycles."""
    client = make_client()
    monkeypatch.setattr(protocol, "HEAD_LIMIT_S", 0.1)
    monkeypatch.setattr(protocol, "_LIMITS_S", (0.1, 0.1, math.inf))
    monkeypatch.setattr(cycle, "_LINGER_S", 0.01)

    async def play():
        loop, state = asyncio.get_running_loop(), ServerState()
        config = uvicorn.Config(client.app, http=protocol.LimitedProtocol, log_config=None, timeout_keep_alive=0)
        server = await loop.create_server(lambda: protocol.LimitedProtocol(config, state, {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(content)
        with contextlib.suppress(ConnectionError):
            await (reader.read() if waits else writer.drain())
        writer.close()
        while state.tasks or state.connections:  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(0.01)
        server.close()

    client.run(play())
    gc.collect()
    gc.disable()
    try:
        client.run(play())
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = (protocol.LimitedProtocol, RequestResponseCycle, Problem)
        assert [found for found in gc.garbage if isinstance(found, kinds)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@contextlib.asynccontextmanager
async def listen_with(app):
    """An application behind the protocol, in this process: the state of its server, and a connection to it."""
    loop, state = asyncio.get_running_loop(), ServerState()
    config = uvicorn.Config(app, http=protocol.LimitedProtocol, log_config=None)
    server = await loop.create_server(lambda: protocol.LimitedProtocol(config, state, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield state, reader, writer
    finally:
        writer.transport.abort()
        server.close()
        while state.connections:  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(0.01)


async def answer_empty(_scope, _receive, send):
    """200 and nothing more."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def test_a_body_behind_other_requests_is_not_read_ahead():
    """Nobody counts it yet: while others are answered, what comes of it stays with the client."""

    async def play():
        turns = asyncio.Semaphore(0)

        async def app(scope, receive, send):
            await turns.acquire()
            await answer_empty(scope, receive, send)

        async with asyncio.timeout(PATIENCE_S), listen_with(app) as (state, _, writer):
            body = POST + b"Content-Length: 8000000\r\n\r\n" + b" " * 6_000_000
            writer.write((LIVE + b"\r\n") * PIPELINE_MAX + body)
            for _ in range(PIPELINE_MAX):
                turns.release()
                await asyncio.sleep(0.02)
            [protocol] = state.connections
            held = len(protocol.cycle.body)
            turns.release()
            return held

    assert 0 < asyncio.run(play()) <= 512 * 1024


def test_requests_that_come_in_uneven_pieces_are_in_time(monkeypatch):
    """Each piece ends a request and begins the next: every one has its own time, and a half one is not silence."""
    monkeypatch.setattr(protocol, "HEAD_LIMIT_S", 0.5)
    monkeypatch.setattr(protocol, "_LIMITS_S", (0.5, 0.5, math.inf))
    request = LIVE + b"\r\n"

    async def play():
        async with asyncio.timeout(PATIENCE_S), listen_with(answer_empty) as (_, reader, writer):
            writer.write(request + request[:20])
            for _ in range(30):
                await asyncio.sleep(0.05)
                writer.write(request[20:] + request[:20])
            writer.write(request[20:])
            await asyncio.sleep(0.05)
            return await reader.read(1_000_000)

    assert asyncio.run(play()).count(b"HTTP/1.1 200") >= 30


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (POST.replace(b"application/json", b"text/plain"), 415),
        (POST.replace(b"/events", b"/nothing"), 404),
        (POST + b"Content-Length: 99999999\r\n", 413),
    ],
)
def test_who_is_answered_before_the_body_is_not_asked_for_it(exchange, head, status):
    """No 100 Continue, and the connection ends: what follows could be the body or the next request."""
    length = b"" if b"Content-Length" in head else b"Content-Length: 2\r\n"
    [(code, headers, _)] = exchange(head + length + b"Expect: 100-continue\r\n\r\n")
    assert (code, headers["connection"]) == (status, "close")


def test_who_is_asked_for_the_body_may_go_on(connect):
    """100 Continue, the answer to the whole request, and the next one on the same connection."""
    connection = connect()
    connection.sendall(POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(b"{}")
    answer = HTTPResponse(connection)
    answer.begin()
    assert answer.status == 422
    answer.read()
    connection.sendall(LIVE + b"Connection: close\r\n\r\n")
    [(status, _, _)] = read_answers(connection)
    assert status == 200


@pytest.mark.parametrize("path", [b"/health/live", b"/items/i01", b"/nothing"])
def test_head_has_no_body(connect, path):
    """The length of what GET would give, and nothing of it: the next answer follows at once."""
    connection = connect()
    head = LIVE.replace(b"GET /health/live", b"HEAD " + path) + b"\r\n"
    connection.sendall(head + LIVE + b"Connection: close\r\n\r\n")
    content = b""
    while received := connection.recv(65_536):
        content += received
    first, second, body = content.split(b"\r\n\r\n")
    assert re.search(rb"content-length: [1-9]", first)
    assert second.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body) == {"status": "ok"}


def test_trailers_are_no_headers(exchange):
    """What follows a body cannot change what its head said, be it sent all at once."""
    trailers = b"Content-Encoding: gzip\r\nContent-Type: text/plain\r\nHost: c4n4ry\r\n"
    [answer] = exchange(
        CHUNKED.replace(HOST, HOST + b"Connection: close\r\n") + b"2\r\n{}\r\n0\r\n" + trailers + b"\r\n"
    )
    assert answer[0] == 422


def test_endless_bodies_are_cut_off(connect):
    """A body that goes on after its refusal, as an endless trailer, is not even thrown away: the connection ends."""
    connection = connect()
    connection.sendall(CHUNKED + b"2\r\n{}\r\n0\r\nA: ")
    sent, began = 0, time.monotonic()
    with contextlib.suppress(ConnectionError):
        while True:
            sent += connection.send(b"a" * 65_536)
    assert sent > MESSAGE_MAX_BYTES or time.monotonic() - began > BODY_LIMIT_S


def test_refusals_are_counted(exchange, running):
    """What never became a request stands in the metrics too, under no route of anybody's choice."""

    def count():
        text = httpx.get(f"{running.url}/metrics").text
        found = re.findall(r'duration_seconds_count\{code="400",method="other",route="unmatched"\} (.*)', text)
        return float(found[0]) if found else 0.0

    before = count()
    exchange(b"c4n4ry /c4n4ry HTTP/1.1\r\n\r\n")
    assert count() == before + 1


SLOW = {
    "silent": (b"", b"", None),
    "head": (LIVE, b"a", 408),
    "blank lines": (b"\r\n", b"\r\n", 408),
    "body": (POST + b"Content-Length: 1000\r\n\r\n", b" ", 408),
    "chunks": (CHUNKED, b"1\r\n \r\n", 408),
}
"""How a connection begins, what it goes on with each second, and what it is answered."""


def test_slow_clients_are_closed_and_hold_up_nobody(connect, running):
    """500 that are silent or send a byte a second: each is told 408 after its 10 s, and all others are served."""
    clients, began = {}, {}
    answers: dict[object, tuple[bytes, float]] = {}
    for kind in [*SLOW] * 100:
        before = time.monotonic()
        client = connect()
        clients[client], began[client] = kind, before
    with selectors.DefaultSelector() as selector, httpx.Client(base_url=running.url, timeout=120) as http:
        for client, kind in clients.items():
            client.sendall(SLOW[kind][0])
            selector.register(client, selectors.EVENT_READ, b"")
        beat = time.monotonic()
        while len(answers) < len(clients):
            for key, _ in selector.select(timeout=0.2):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    received = key.fileobj.recv(65_536)
                except ConnectionResetError:
                    received = b""
                selector.unregister(key.fileobj)
                if received:
                    selector.register(key.fileobj, selectors.EVENT_READ, key.data + received)
                else:
                    answers[key.fileobj] = key.data, time.monotonic() - began[key.fileobj]
            if time.monotonic() - beat >= 1:
                beat = time.monotonic()
                for client in clients.keys() - answers.keys():
                    try:
                        client.send(SLOW[clients[client]][1])
                    except OSError:
                        continue  # closed meanwhile: the next look finds it
            assert http.get("/health/live").status_code == 200
    for client, kind in clients.items():
        content, seconds = answers[client]
        assert seconds >= min(HEAD_LIMIT_S, BODY_LIMIT_S) - 0.5
        check_farewell(content, SLOW[kind][2])


def check_farewell(content, status):
    """Closed without a word, or with that problem."""
    if status is None:
        assert content == b""
    else:
        assert content.startswith(b"HTTP/1.1 %d " % status)
        assert b"urn:nextitem:problem:request-timeout" in content


def test_clients_that_take_no_answers_are_cut_off(monkeypatch):
    """Questions without end and nobody who reads the answers: the connection is reset, and no task is left waiting."""
    monkeypatch.setattr(protocol, "HEAD_LIMIT_S", 0.1)
    monkeypatch.setattr(protocol, "SEND_LIMIT_S", 0.1)

    async def answer_at_length(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000000")]})
        await send({"type": "http.response.body", "body": bytes(1_000_000)})

    async def play():
        loop, state = asyncio.get_running_loop(), ServerState()
        config = uvicorn.Config(answer_at_length, http=protocol.LimitedProtocol, log_config=None)
        server = await loop.create_server(lambda: protocol.LimitedProtocol(config, state, {}), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            client.setblocking(False)
            with contextlib.suppress(ConnectionError):
                while True:
                    await loop.sock_sendall(client, (LIVE + b"\r\n") * 100)
        while state.tasks or state.connections:  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(0)
        server.close()

    asyncio.run(play())


def test_who_closes_the_connection_is_worked_for_no_longer():
    """Whatever is awaited for a client is cancelled when it leaves, before its body was read or after."""

    async def play():
        loop, state = asyncio.get_running_loop(), ServerState()
        begun, left = asyncio.Semaphore(0), asyncio.Semaphore(0)

        async def answer(scope, receive, _send):
            try:
                if scope["path"] == "/late":
                    while (await receive())["type"] != "http.disconnect":
                        begun.release()
                with cancel_on_disconnect(Request(scope)):
                    begun.release()
                    await asyncio.Event().wait()
            except ClientDisconnect:
                left.release()

        config = uvicorn.Config(answer, http=protocol.LimitedProtocol, log_config=None)
        server = await loop.create_server(lambda: protocol.LimitedProtocol(config, state, {}), "127.0.0.1", 0)
        for path in (b"/", b"/late"):
            with socket.create_connection(server.sockets[0].getsockname()) as client:
                client.sendall(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
                await begun.acquire()
            await left.acquire()
        server.close()

    asyncio.run(play())

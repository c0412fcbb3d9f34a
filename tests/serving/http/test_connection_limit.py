"""Connections: who asks nothing cannot take them from others, nor can who takes no answers fill the memory."""

import asyncio
import re
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from uvicorn.server import ServerState

from service.errors import StartFailed
from service.http import connection_limit, protocol
from service.http.allowed_hosts import AllowedHosts
from service.http.connection_limit import ConnectionLimit
from service.process.server import configure
from service.settings import Settings
from service.system.open_files import limit_connections

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
MANY = 60
"""Connections in a test that says so to the service."""
STALLED = {
    "silent": b"",
    "head": LIVE,
    "body": b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
    "idle": LIVE + b"\r\n",
}


def connect(process):
    """A connection to a service."""
    url = urlsplit(process.url)
    return socket.create_connection((url.hostname, url.port), timeout=120)


@pytest.mark.parametrize("content", STALLED.values(), ids=STALLED)
def test_who_asks_nothing_makes_room_for_others(start_process, content):
    """Four times as many connections as are kept: probes are answered all the while, and so is who goes on asking."""
    process = start_process("--max-connections", str(MANY))
    stalled, url = [], urlsplit(process.url)
    kept = HTTPConnection(url.hostname, url.port, timeout=120)

    def get(path):
        kept.request("GET", path)
        return kept.getresponse().read().decode()

    for number in range(4 * MANY):
        stalled.append(connect(process))
        stalled[-1].sendall(content)
        if number % 20 == 0:
            assert "ok" in get("/health/live")
            assert httpx.get(f"{process.url}/health/live").status_code == 200
    [open_now] = re.findall(r"^nextitem_http_connections (\S+)$", get("/metrics"), re.MULTILINE)
    assert MANY - 5 <= float(open_now) <= MANY
    for connection in [kept, *stalled]:
        connection.close()
    process.close()
    warnings = [entry for entry in process.log if entry["level"] == "warning"]
    assert [(entry["message"].split(":")[0], entry["limit"]) for entry in warnings] == [
        ("Connection limit reached", MANY)
    ]


def test_descriptors_are_not_spent():
    """A process that may open 100 files and no more keeps fewer connections, and one that may have more takes them."""
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, {limits});"
        "from service.system.open_files import *; raise_limit();"
        "print(r.getrlimit(r.RLIMIT_NOFILE)[0], limit_connections(None))"
    )

    def look(limits):
        return subprocess.check_output([sys.executable, "-c", code.format(limits=limits)], text=True).split()

    assert look((100, 100)) == ["100", "50"]
    assert look((100, 1024)) == ["1024", "768"]
    assert look((1024, 10_000)) == ["10000", "4096"]


def test_more_than_can_be_had_is_refused():
    """Told at the start, and not by a service that fails under load."""
    with pytest.raises(StartFailed, match="see ulimit -n"):
        limit_connections(10**9)
    assert limit_connections(7) == 7


def test_idle_connections_stay_longer_than_those_of_proxies(start_process):
    """More than the minute that is usual among proxies; and as long as it is told."""
    assert configure(Settings(bundle="b"), FastAPI()).timeout_keep_alive > 60
    process = start_process("--keep-alive-s", "0.5")
    with connect(process) as connection:
        connection.sendall(LIVE + b"\r\n")
        began_s = time.monotonic()
        while connection.recv(65_536):
            answered_s = time.monotonic()
    assert time.monotonic() - began_s < 10
    assert time.monotonic() - answered_s >= 0.4


def test_untaken_answers_have_a_budget(monkeypatch):
    """Who has waited longest with an answer is cut off when all together are too large, and the others are not."""
    monkeypatch.setattr(connection_limit, "UNSENT_MAX_BYTES", 10_000_000)
    size = 10_000_000

    async def answer_at_length(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": bytes(size)})

    async def play():
        loop, state = asyncio.get_running_loop(), ServerState()
        config = uvicorn.Config(answer_at_length, http=protocol.LimitedProtocol, log_config=None)
        rules = {protocol.RULES: protocol.ConnectionRules(AllowedHosts(), ConnectionLimit())}
        server = await loop.create_server(lambda: protocol.LimitedProtocol(config, state, rules), "127.0.0.1", 0)
        clients = []
        for _ in range(4):
            clients.append(await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1000))
            clients[-1][1].write(LIVE + b"\r\n")
            await asyncio.sleep(0.1)
        taken = []
        for reader, writer in clients:
            try:
                await reader.readuntil(b"\r\n\r\n")
                taken.append(len(await reader.readexactly(size)))
            except (ConnectionError, asyncio.IncompleteReadError):
                taken.append(0)
            writer.close()
        server.close()
        return taken

    taken = asyncio.run(play())
    assert taken[0] == 0
    assert taken[-1] == size

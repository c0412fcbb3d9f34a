"""The store's tests run over both servers: the embedded Valkey and a Redis 7 from PATH."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from service import leash
from service.embedded import EmbeddedStore
from service.event import Event, make_event
from service.history import HistoryStore, connect

NOW_MS = 1_763_719_498_123


@pytest.fixture(scope="session")
def embedded_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an embedded store that lives as long as the session."""
    with EmbeddedStore(tmp_path_factory.mktemp("valkey") / "data") as store:
        yield store.url


@pytest.fixture(scope="session")
def redis_seven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis 7 that answers after fsync, on a unix socket only."""
    binary = shutil.which("redis-server")
    if binary is None:
        if os.environ.get("CI") == "true":
            pytest.fail("redis-server is not on PATH: CI must test both stores")
        pytest.skip("redis-server is not on PATH")
    data_dir = tmp_path_factory.mktemp("redis")
    with tempfile.TemporaryDirectory(prefix="nextitem-test-") as folder:
        socket = Path(folder) / "redis.sock"
        options = f"--port 0 --unixsocket {socket} --dir {data_dir} --appendonly yes --appendfsync always".split()
        options += ["--save", "", "--logfile", str(data_dir / "redis.log")]
        server = subprocess.Popen([sys.executable, leash.__file__, str(os.getpid()), binary, *options])
        try:
            _wait_for(socket, server)
            yield f"unix://{socket}"
        finally:
            server.terminate()
            server.wait(10)


def _wait_for(socket: Path, server: subprocess.Popen[bytes]) -> None:
    with Redis(unix_socket_path=str(socket)) as client:
        for _ in range(500):
            try:
                client.ping()
            except RedisError:
                assert server.poll() is None, "redis-server ended at once"
                time.sleep(0.02)
            else:
                return
    pytest.fail("redis-server did not answer within 10 s")


@pytest.fixture(params=["embedded_valkey", "redis_seven"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store: each test runs over both servers."""
    url: str = request.getfixturevalue(request.param)
    with Redis.from_url(url) as client:
        client.flushall()
        client.script_flush()
    return url


@pytest.fixture
def raw(store_url: str) -> Iterator[Redis]:
    """A plain client of the same server, to look behind the port and to break things."""
    with Redis.from_url(store_url) as client:
        yield client


@pytest.fixture
def in_store(store_url: str) -> Callable[..., Any]:
    """Run a scenario, an async function of a HistoryStore with the given options, in a loop of its own."""

    def run(scenario: Callable[[HistoryStore], Awaitable[Any]], **options: Any) -> Any:
        async def main() -> Any:
            store = HistoryStore(connect(store_url), **options)
            try:
                return await scenario(store)
            finally:
                await store.close()

        return asyncio.run(main())

    return run


@pytest.fixture
def event() -> Callable[..., Event]:
    """Make an event of u1 on i1 at NOW_MS, with whatever is given instead."""

    def make(**given: Any) -> Event:
        return make_event(**{"user_id": "u1", "item_id": "i1", "event_type": "view", "now_ms": NOW_MS, **given})

    return make

"""What the store says of itself: how full it is, and whether it would keep what it acknowledged."""

import asyncio
import math
import types

import pytest

from service.connection import connect
from service.durability import SAFE
from service.errors import StartFailed, StoreUnavailable
from service.history import HistoryStore, StoreState
from service.metrics import Metrics
from service.pipe import Pipe
from service.store_watch import LOOK_EVERY_S, StoreWatch

LIMIT_BYTES = 64 * 2**20


def test_memory_and_its_limit_are_the_servers(in_store, raw, settings):
    """Both in bytes, the limit 0 where there is none."""
    state = in_store(lambda store: store.inspect())
    assert state.memory_limit_bytes == 0
    assert state.memory_bytes == pytest.approx(raw.info("memory")["used_memory"], rel=0.2)
    settings(maxmemory=LIMIT_BYTES)
    assert in_store(lambda store: store.inspect()).memory_limit_bytes == LIMIT_BYTES


def test_safe_settings_are_durable(in_store):
    """Append-only file, fsync always, no eviction."""
    assert in_store(lambda store: store.inspect()).durable


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("no_appendfsync_on_rewrite", "yes"),
        ("maxmemory_policy", "allkeys-lru"),
    ],
)
def test_each_unsafe_setting_is_noticed(in_store, settings, name, value):
    """One that is not safe is enough, and there is a case for each."""
    settings(**{name: value})
    assert not in_store(lambda store: store.inspect()).durable
    assert name.replace("_", "-") in SAFE
    assert len(SAFE) == 4


def test_settings_kept_secret_are_not_durable(store_url, account):
    """Where the configuration cannot be read, the memory still can."""

    async def main():
        store = HistoryStore(connect(f"{store_url}?username={account}&password=first"))
        try:
            return await store.inspect()
        finally:
            await store.close()

    state = asyncio.run(main())
    assert not state.durable
    assert state.memory_bytes > 100_000


def test_password_is_read_anew_for_every_connection(store_url, raw, account, tmp_path):
    """A rotated password works without a restart; a wrong one, or none, is StoreUnavailable until it is right."""
    file = tmp_path / "password"
    file.write_text("first\n")
    kinds = []

    async def main():
        url = store_url.replace("unix://", f"unix://{account}@")
        store = HistoryStore(connect(url, password_file=file), on_error=kinds.append)
        try:
            await store.ping()
            raw.acl_setuser(account, enabled=True, passwords=["+second", "-first"])
            raw.client_kill_filter(user=account)
            for _ in range(2):  # the connection that was killed, and a new one with the old password
                with pytest.raises(StoreUnavailable):
                    await store.ping()
            file.unlink()
            with pytest.raises(StoreUnavailable):
                await store.ping()
            file.write_text("second")
            await store.ping()
        finally:
            await store.close()

    asyncio.run(main())
    assert kinds == ["connection", "refused", "connection"]


def test_password_file_that_is_not_there_is_said_at_the_start(tmp_path):
    """Not at the first request."""
    with pytest.raises(StartFailed, match="password file cannot be read: No such file"):
        connect("redis://nobody@localhost", password_file=tmp_path / "missing")


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff"])
def test_password_file_that_holds_no_password(tmp_path, content):
    """One line of text, with or without its end, is what a password is."""
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(StartFailed, match="must hold one line"):
        connect("redis://nobody@localhost", password_file=file)


def test_server_without_a_limit_of_memory(in_store, monkeypatch):
    """What speaks the protocol and has no `maxmemory` has no limit, and is no error."""
    ask = Pipe.ask

    async def without(pipe, commands):
        info, *rest = await ask(pipe, commands)
        return [info.replace(b"maxmemory:", b"other:"), *rest]

    monkeypatch.setattr(Pipe, "ask", without)
    assert in_store(lambda store: store.inspect()).memory_limit_bytes == 0


class _Gauges:
    """A store that answers what it is told to, and the gauges that a watch makes of it."""

    def __init__(self):
        self.looks = 0
        self.state = StoreState(durable=True, memory_bytes=7, memory_limit_bytes=9)
        self.metrics = Metrics(event_types=["view"], model_version="v", routes=[])
        self.watch = StoreWatch(store=types.SimpleNamespace(inspect=self.inspect), metrics=self.metrics)

    async def inspect(self):
        self.looks += 1
        if self.state is None:
            raise StoreUnavailable
        return self.state

    def read(self):
        lines = [line.split() for line in self.metrics.expose().decode().splitlines() if line[0] != "#"]
        values = dict(line for line in lines if line[0].startswith("nextitem_store_"))
        names = ("durable", "memory_bytes", "memory_limit_bytes")
        return tuple(float(values[f"nextitem_store_{name}"]) for name in names)


def test_store_is_looked_at_once_for_many_readers():
    """A hundred readers at a time cost one look."""
    gauges = _Gauges()

    async def main():
        await asyncio.gather(*(gauges.watch.refresh() for _ in range(100)))

    asyncio.run(main())
    assert gauges.looks == 1
    assert LOOK_EVERY_S < 5  # the interval of scrapes: each has a look of its own
    assert gauges.read() == (1, 7, 9)


def test_store_that_is_not_seen_is_not_known_to_be_safe(monkeypatch):
    """Its gauges neither stay at their last value nor claim that it is empty."""
    gauges = _Gauges()
    monkeypatch.setattr("service.store_watch.LOOK_EVERY_S", 0)
    asyncio.run(gauges.watch.refresh())
    gauges.state = None
    asyncio.run(gauges.watch.refresh())
    durable, memory, limit = gauges.read()
    assert durable == 0
    assert math.isnan(memory)
    assert math.isnan(limit)

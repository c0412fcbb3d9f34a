"""What the store says of itself: how full it is, and whether it would keep what it acknowledged."""

import asyncio
import math
import socket
import time
import types
from typing import Any
from uuid import uuid4

import pytest

from service.errors import StartFailed, StoreNotDurable, StoreUnavailable
from service.store.archive_status import FAILURES, ArchiveState
from service.store.connection import connect, refuse_cluster
from service.store.durability import SAFE
from service.store.history import HistoryStore
from service.store.multiplexer import Multiplexer
from service.store.status import StoreState, find_refusal, measure_skew
from service.store_monitor import REFRESH_S, StoreMonitor
from service.telemetry.metrics import Metrics

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
        ("replica_read_only", "no"),
    ],
)
def test_each_unsafe_setting_is_noticed(in_store, settings, name, value):
    """One that is not safe is enough, and there is a case for each."""
    settings(**{name: value})
    assert not in_store(lambda store: store.inspect()).durable
    assert name.replace("_", "-") in SAFE
    assert len(SAFE) == 5


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
    kinds: list[str] = []

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
    ask = Multiplexer.ask

    async def without(pipe, commands):
        return [
            reply.replace(b"maxmemory:", b"other:") if isinstance(reply, bytes) else reply
            for reply in await ask(pipe, commands)
        ]

    monkeypatch.setattr(Multiplexer, "ask", without)
    assert in_store(lambda store: store.inspect()).memory_limit_bytes == 0


class _Gauges:
    """A store that answers what it is told to, and the gauges that a watch makes of it."""

    def __init__(self):
        self.looks = 0
        self.state: StoreState | None = StoreState(
            durable=True, memory_bytes=7, memory_limit_bytes=9, clock_skew_s=-3.5
        )
        self.metrics = Metrics(event_types=["view"], model_version="v", routes=[])
        store: Any = types.SimpleNamespace(inspect=self.inspect)
        self.watch = StoreMonitor(store=store, metrics=self.metrics)

    async def inspect(self):
        self.looks += 1
        if self.state is None:
            raise StoreUnavailable
        return self.state

    def read(self):
        lines = [line.split() for line in self.metrics.expose().decode().splitlines() if line[0] != "#"]
        values = dict(line for line in lines if line[0].startswith("nextitem_store_"))
        names = ("durable", "memory_bytes", "memory_limit_bytes", "clock_skew_seconds")
        return tuple(float(values[f"nextitem_store_{name}"]) for name in names)

    def read_archive(self):
        lines = [line.rsplit(" ", 1) for line in self.metrics.expose().decode().splitlines() if line[0] != "#"]
        return {name: float(value) for name, value in lines if name.startswith(("nextitem_archive", "nextitem_eras"))}


def test_store_is_looked_at_once_for_many_readers():
    """A hundred readers at a time cost one look."""
    gauges = _Gauges()

    async def main():
        await asyncio.gather(*(gauges.watch.refresh() for _ in range(100)))

    asyncio.run(main())
    assert gauges.looks == 1
    assert REFRESH_S < 5  # the interval of scrapes: each has a look of its own
    assert gauges.read() == (1, 7, 9, -3.5)


def test_store_that_is_not_seen_is_not_known_to_be_safe(monkeypatch):
    """Its gauges neither stay at their last value nor claim that it is empty."""
    monkeypatch.setattr("service.store_monitor.REFRESH_S", 0)
    gauges = _Gauges()
    asyncio.run(gauges.watch.refresh())
    gauges.state = None
    asyncio.run(gauges.watch.refresh())
    durable, *unknown = gauges.read()
    assert durable == 0
    assert all(map(math.isnan, unknown))


def test_archive_is_shown_as_the_store_tells(monkeypatch):
    """What the archiver left there, whichever machine it runs on; nothing is claimed of one that cannot be asked."""
    monkeypatch.setattr("service.store_monitor.REFRESH_S", 0)
    gauges = _Gauges()
    failed = {kind: int(kind == "disk") * 3 for kind in FAILURES}
    archive = ArchiveState(1.5, failed, pending_events=5, erasures_pending=2, oldest_erasure_s=1.25)
    gauges.state = StoreState(durable=True, memory_bytes=7, memory_limit_bytes=9, archive=archive)
    asyncio.run(gauges.watch.refresh())
    assert gauges.read_archive() == {
        "nextitem_archive_last_success_timestamp_seconds": 1.5,
        **{f'nextitem_archive_failed_runs{{kind="{kind}"}}': count for kind, count in failed.items()},
        "nextitem_archive_pending_events": 5,
        "nextitem_erasures_pending": 2,
        "nextitem_erasure_oldest_pending_timestamp_seconds": 1.25,
    }
    gauges.state = StoreState(durable=True, memory_bytes=7, memory_limit_bytes=9)
    asyncio.run(gauges.watch.refresh())
    assert all(map(math.isnan, gauges.read_archive().values()))


def test_pending_work_is_counted_in_the_store(in_store, raw, event):
    """Events in the log, users who are erased and not out of the archive yet; a key of another kind hides it all."""

    async def scenario(store):
        before = (await store.inspect()).archive
        await store.append([event(user_id=f"u{number}", event_id="e") for number in range(9)])
        for number in range(3):
            await store.erase(f"u{number}")
        return before, (await store.inspect()).archive

    before, after = in_store(scenario)
    assert before == ArchiveState(0, dict.fromkeys(FAILURES, 0), 0, 0, 0)
    assert (after.pending_events, after.erasures_pending) == (6, 3)
    assert after.oldest_erasure_s == pytest.approx(raw.time()[0], abs=600)
    raw.set("nextitem:archive", "x")
    state = in_store(lambda store: store.inspect())
    assert state.archive is None
    assert state.memory_bytes > 0


def test_clock_of_the_store_beside_ours(in_store, monkeypatch, caplog):
    """Near 0 on one machine; where they part, the log says so once, and once when they agree again."""
    true_time = time.time
    ahead_s = 0.0
    monkeypatch.setattr("service.store.history.time.time", lambda: true_time() - ahead_s)

    async def scenario(store):
        nonlocal ahead_s
        seen = [(await store.inspect()).clock_skew_s]
        ahead_s = 600.0
        seen += [(await store.inspect()).clock_skew_s for _ in range(3)]
        ahead_s = 0.0
        return [*seen, (await store.inspect()).clock_skew_s]

    assert in_store(scenario) == pytest.approx([0, 600, 600, 600, 0], abs=2)
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("The clocks of the store and of this machine are 600 s apart")
    assert last == "The clocks of the store and of this machine agree again"


def test_skew_is_counted_from_the_middle_of_the_call():
    """A slow answer is not a slow clock; a server that does not tell is not known."""
    assert measure_skew({"server_time_usec": "101000000"}, asked_s=99.0, answered_s=101.0) == 1.0
    assert measure_skew({}, asked_s=99.0, answered_s=101.0) is None


@pytest.mark.parametrize(
    ("info", "refusal"),
    [
        ({}, None),
        ({"role": "master", "used_memory": "9", "maxmemory": "0"}, None),
        ({"used_memory": "9", "maxmemory": "9"}, None),
        ({"used_memory": "12", "maxmemory": "9", "mem_not_counted_for_evict": "3"}, None),
        ({"used_memory": "10", "maxmemory": "9"}, "OOM"),
        ({"role": "slave"}, "READONLY"),
        ({"cluster_enabled": "1", "role": "slave"}, "MOVED"),
    ],
)
def test_refusals_that_info_foretells(info, refusal):
    """Beyond its memory as the server counts it, a replica, a node of a cluster."""
    assert find_refusal(info) == refusal


@pytest.fixture
def cluster(short_folder, require_tool, run_store, tmp_path):
    """The URL of a node of a Redis Cluster."""
    path = short_folder / f"cluster-{uuid4().hex[:8]}.sock"
    options = f"--unixsocket {path} --dir {tmp_path} --appendonly yes --appendfsync always".split()
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        port, bus = (str(free.getsockname()[1]) for free in (first, second))
    options += ["--port", port, "--cluster-port", bus, "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
    with run_store([require_tool("redis-server"), *options], path):
        yield f"unix://{path}"


@pytest.mark.parametrize("durability", ["strict", "relaxed"])
def test_cluster_gets_no_events(cluster, run_scenario, event, caplog, durability):
    """With one sentence in the log; the service does not start over one that answers."""

    async def scenario(store):
        await store.ping()
        with pytest.raises(StoreNotDurable):
            await store.append([event()])
        return store.durable, store.refuses_events

    assert run_scenario(scenario, cluster, durability=durability, read_timeout_s=10.0) == (False, True)
    assert "cluster_enabled is 1: a Redis Cluster is not supported" in caplog.text
    with pytest.raises(StartFailed, match="is a Redis Cluster, which is not supported"):
        refuse_cluster(connect(cluster))


def test_start_does_not_wait_for_a_store(store_url):
    """What is no cluster passes, and so does what does not answer."""
    refuse_cluster(connect(store_url))
    refuse_cluster(connect("unix:///nowhere/store.sock"))

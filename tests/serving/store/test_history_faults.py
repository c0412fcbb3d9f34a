"""The history port when the store misbehaves: nothing half-written, a quick StoreUnavailable, and back by itself."""

import asyncio
import os
import random
import signal
import statistics
import time

import pytest
import uvloop

from benchmarks.reliability.chaos.proxy import NO_FAULTS, Faults, Proxy
from service.embedded.server import EmbeddedStore
from service.errors import StoreUnavailable
from service.store.connection import connect
from service.store.history import HistoryStore
from service.store.records import History, Outcome
from service.store.redis_keys import name_keys

KEYS = name_keys("u1", prefix="nextitem:")
DAMAGE = {
    KEYS.history: lambda raw: raw.set(KEYS.history, "x"),
    KEYS.version: lambda raw: raw.rpush(KEYS.version, "x"),
    KEYS.marks: lambda raw: raw.set(KEYS.marks, "x"),
    KEYS.order: lambda raw: raw.set(KEYS.order, "x"),
    KEYS.log: lambda raw: raw.set(KEYS.log, "x"),
    "no count": lambda raw: raw.set(KEYS.version, "1.5"),
    "no small count": lambda raw: raw.set(KEYS.version, "9" * 18),
}


def _append(event):
    return lambda store: store.append([event])


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_key_leaves_nothing_half_written(in_store, raw, event, damage):
    """When any key holds another kind of value, nothing is written; repaired, the retry is stored and no duplicate."""
    DAMAGE[damage](raw)
    keys = raw.keys()
    kinds: list[str] = []
    if damage == KEYS.log:  # which all users of the partition share
        with pytest.raises(StoreUnavailable):
            in_store(_append(event(event_id="e")), on_error=kinds.append)
    else:
        appended = in_store(_append(event(event_id="e")), on_error=kinds.append)
        assert (appended.outcomes, appended.versions) == ([Outcome.DAMAGED], {})
    assert kinds == ["damaged"]
    assert raw.keys() == keys
    raw.delete(*keys)
    assert in_store(_append(event(event_id="e"))).outcomes == [Outcome.ACCEPTED]


def test_one_users_damage_refuses_that_users_events_alone(in_store, raw, event, caplog):
    """The other's are stored; the log tells once, without the id; after the repair the rest is stored."""
    DAMAGE[KEYS.marks](raw)
    events = [event(user_id="u2", event_id="e"), event(event_id="e")]

    async def scenario(store):
        return [await store.append(events) for _ in range(3)]

    first, *_ = in_store(scenario)
    assert (first.outcomes, first.versions) == ([Outcome.ACCEPTED, Outcome.DAMAGED], {"u2": 1})
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("Stored data of a user in partition {54} is damaged")
    assert "u1" not in caplog.text
    raw.delete(KEYS.marks)
    assert in_store(lambda store: store.append(events)).outcomes == [Outcome.DUPLICATE, Outcome.ACCEPTED]


@pytest.mark.parametrize("damage", [KEYS.history, KEYS.version, "no count", "no small count"])
def test_one_users_damage_leaves_others_their_histories(in_store, raw, event, damage):
    """Among three histories one cannot be read, and is counted once; the two around it are there."""
    in_store(lambda store: store.append([event(user_id="u0"), event(user_id="u2")]))
    DAMAGE[damage](raw)
    kinds: list[str] = []
    before, damaged, after = in_store(lambda store: store.read_many(["u0", "u1", "u2"]), on_error=kinds.append)
    assert [before.version, after.version] == [1, 1]
    assert isinstance(damaged, StoreUnavailable)
    assert kinds == ["damaged"]


def test_errors_say_nothing_of_users(in_store, raw, event, caplog):
    """Neither the exception nor its cause nor the log holds an id."""
    name_of_user = "canary-user"
    raw.set(name_keys(name_of_user, prefix="nextitem:").history, "x")
    with pytest.raises(StoreUnavailable) as raised:
        in_store(lambda store: store.export(name_of_user))
    [read] = in_store(lambda store: store.read_many([name_of_user]))
    in_store(_append(event(user_id=name_of_user, item_id="canary-item")))
    for error in (raised.value, raised.value.__cause__, read):
        assert "canary" not in repr(error)
    assert caplog.records
    assert "canary" not in caplog.text


@pytest.mark.parametrize(
    "entry",
    [
        "1763719498123 a view -",
        "x a view - e",
        "1763719498123 a b view - e",
        "",
        "1763719498123456 a view - e",
        "-763719498123 a view - e",
    ],
)
def test_a_damaged_entry_is_noticed(in_store, raw, event, entry):
    """A history with an entry of other than five words, or with no time, is refused and never misread."""
    in_store(_append(event()))
    raw.rpush(KEYS.history, entry)
    kinds: list[str] = []
    [read] = in_store(lambda store: store.read_many(["u1"]), on_error=kinds.append)
    assert isinstance(read, StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        in_store(lambda store: store.export("u1"), on_error=kinds.append)
    assert kinds == ["damaged", "damaged"]


@pytest.mark.parametrize(
    "entry",
    ["1763719498123 a view much e", "1763719498123 a view nan e", "1763719498123456 a view - e", "x a view - e"],
)
def test_what_came_with_an_item_is_read_where_it_is_wanted(in_store, raw, event, entry):
    """Types, values and times of a sound history; one whose older entries are damaged is refused as a whole."""
    in_store(_append(event(value=2.5)))
    [found] = in_store(lambda store: store.read_many(["u1"]), reads_events=True)
    assert found.events == (["view"], [2.5], [event().timestamp_ms])
    raw.lpush(KEYS.history, entry)
    [found] = in_store(lambda store: store.read_many(["u1"]), reads_events=True)
    assert isinstance(found, StoreUnavailable)


def test_a_flushed_script_is_loaded_again(in_store, raw, event):
    """After SCRIPT FLUSH the next append loads the script, and each event is stored once."""

    async def scenario(store):
        first = await store.append([event(user_id=f"u{n}", event_id="a") for n in range(3)])
        await asyncio.to_thread(raw.script_flush)
        second = await store.append([event(user_id=f"u{n}", event_id="b") for n in range(3)])
        return first.versions, second.versions, second.outcomes

    first, second, outcomes = in_store(scenario)
    assert set(first.values()) == {1}
    assert set(second.values()) == {2}
    assert outcomes == [Outcome.ACCEPTED] * 3


def test_a_full_store_refuses_and_recovers(in_store, raw, event):
    """At maxmemory an append is refused whole; with room again the same event is stored, not taken for a duplicate."""
    kinds: list[str] = []
    in_store(_append(event(event_id="first")))
    raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable):
            in_store(_append(event(event_id="e")), on_error=kinds.append)
        [history] = in_store(lambda store: store.read_many(["u1"]))
        marks = raw.hkeys(KEYS.marks)
    finally:
        raw.config_set("maxmemory", 0)
    assert kinds == ["refused"]
    assert history.version == 1
    assert marks == [b"first"]
    assert in_store(_append(event(event_id="e"))).outcomes == [Outcome.ACCEPTED]


def test_a_read_only_store_refuses_events_and_answers_reads(in_store, raw, event):
    """A replica reports READONLY, which counts as refused; reads go on."""
    in_store(_append(event()))
    kinds: list[str] = []
    raw.config_set("replica-serve-stale-data", "yes")
    raw.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(StoreUnavailable):
            in_store(_append(event(event_id="e")), on_error=kinds.append)
        [history] = in_store(lambda store: store.read_many(["u1"]))
    finally:
        raw.replicaof("NO", "ONE")
    assert kinds == ["refused"]
    assert history.item_ids == ["i1"]


def test_a_missing_permission_counts_as_refused(in_store, raw, event):
    """Without the right to run scripts, an append says that the store refuses."""
    kinds: list[str] = []
    raw.acl_setuser("default", enabled=True, commands=["-evalsha"])
    try:
        with pytest.raises(StoreUnavailable):
            in_store(_append(event()), on_error=kinds.append)
    finally:
        raw.acl_setuser("default", enabled=True, commands=["+evalsha"])
    assert kinds == ["refused"]


def test_a_frozen_store_times_out(in_store, raw, event):
    """A server that accepts connections and says nothing costs each operation its time limit and little more."""
    pid = raw.info("server")["process_id"]
    kinds: list[str] = []
    took_s: dict[str, list[float]] = {"read": [], "ping": [], "append": []}

    async def scenario(store):
        await store.append([event(event_id="before")])
        os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(3):
                operations = {
                    "read": store.read_many(["u1"]),
                    "ping": store.ping(),
                    "append": store.append([event(event_id="e")]),
                }
                for name, operation in operations.items():
                    started_s = time.perf_counter()
                    with pytest.raises(StoreUnavailable):
                        await operation
                    took_s[name].append(time.perf_counter() - started_s)
        finally:
            os.kill(pid, signal.SIGCONT)
        return await store.append([event(event_id="e")])

    appended = in_store(scenario, on_error=kinds.append, read_timeout_s=0.1, write_timeout_s=0.3)
    assert kinds == ["timeout"] * 9
    # The quickest of three, on a machine that may be busy: far from the seconds of a client's defaults.
    assert 0.1 <= min(took_s["read"]) < 1
    assert 0.1 <= min(took_s["ping"]) < 1
    assert 0.3 <= min(took_s["append"]) < 3
    # The frozen server had the requests in its socket: thawed it may have run them, and the retry is harmless.
    assert appended.versions == {"u1": 2}


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_killed_store_fails_fast_and_comes_back(tmp_path, event, new_loop):
    """With the server gone every operation fails at once; with a new one the same client works again."""
    first = EmbeddedStore(tmp_path / "data")
    first.start()
    socket = first.url.removeprefix("unix://")
    alias = tmp_path / "s"
    alias.symlink_to(socket)
    kinds: list[str] = []
    took_s: list[float] = []

    async def outage(store):
        for _ in range(5):
            for operation in (
                store.ping(),
                store.read_many(["u1"]),
                store.export("u1"),
                store.append([event(event_id="e1")]),
            ):
                started_s = time.perf_counter()
                with pytest.raises(StoreUnavailable):
                    await operation
                took_s.append(time.perf_counter() - started_s)

    with asyncio.Runner(loop_factory=new_loop) as runner:

        async def open_store():
            store = HistoryStore(connect(f"unix://{alias}"), on_error=kinds.append)
            # Several connections lie idle in the pool when the server dies.
            await asyncio.gather(*(store.append([event(event_id="e0")]) for _ in range(8)))
            return store

        store = runner.run(open_store())
        os.kill(first.pid, signal.SIGKILL)
        first.stop()
        runner.run(outage(store))
        with EmbeddedStore(tmp_path / "data") as second:
            alias.unlink()
            alias.symlink_to(second.url.removeprefix("unix://"))
            appended = runner.run(store.append([event(event_id="e0"), event(event_id="e1")]))
            runner.run(store.close())
    assert kinds == ["connection"] * 20
    assert statistics.median(took_s) < 1.0
    assert appended.outcomes == [Outcome.DUPLICATE, Outcome.ACCEPTED]


def test_a_store_restarted_in_between_is_not_noticed(tmp_path, event):
    """Connections that a restart closed are replaced before use: the first operations after it succeed."""
    alias = tmp_path / "s"

    def point(store):
        alias.unlink(missing_ok=True)
        alias.symlink_to(store.url.removeprefix("unix://"))

    with asyncio.Runner() as runner:

        async def open_store():
            store = HistoryStore(connect(f"unix://{alias}"))
            await asyncio.gather(*(store.append([event(event_id=f"e{n}")]) for n in range(8)))
            return store

        with EmbeddedStore(tmp_path / "data") as first:
            point(first)
            store = runner.run(open_store())
        with EmbeddedStore(tmp_path / "data") as second:
            point(second)

            async def use():
                histories = await asyncio.gather(*(store.read_many(["u1"]) for _ in range(8)))
                return histories, await store.append([event(event_id="e0")])

            histories, appended = runner.run(use())
            runner.run(store.close())
    assert {history.version for [history] in histories} == {8}
    assert appended.outcomes == [Outcome.DUPLICATE]


def test_a_lost_reply_is_told_and_nothing_is_sent_twice(in_store, store_url, raw, event):
    """When the line breaks after the store has done it, the client is told so at once and repeats nothing itself."""
    made = event(event_id="e")

    async def scenario(direct):
        await direct.append([event(user_id="other")])  # the script is loaded
        raw.config_resetstat()
        async with Proxy(store_url) as proxy:
            store = HistoryStore(connect(proxy.url))
            await store.ping()
            proxy.faults = Faults(lost_replies=1)
            with pytest.raises(StoreUnavailable):
                await store.append([made])
            calls = raw.info("commandstats")["cmdstat_evalsha"]["calls"]
            proxy.faults = NO_FAULTS
            appended = await store.append([made])
            await store.close()
        return calls, proxy.connections, appended

    calls, connections, appended = in_store(scenario)
    assert calls == 1
    assert connections == 2
    assert (appended.outcomes, appended.versions) == ([Outcome.DUPLICATE], {"u1": 1})


def test_idle_connections_that_were_closed_are_replaced(in_store, store_url, event):
    """A connection that the other side closed while idle is noticed before use, over TCP too."""

    async def scenario(direct):
        await direct.append([event()])
        async with Proxy(store_url) as proxy:
            store = HistoryStore(connect(proxy.url))
            items: list[str] = []
            for _ in range(3):
                [history] = await store.read_many(["u1"])
                assert isinstance(history, History)
                items += history.item_ids
                await proxy.hang_up()
                await asyncio.sleep(0.05)  # for the news to arrive
            await store.close()
        return items, proxy.connections

    assert in_store(scenario) == (["i1"] * 3, 3)


def test_cancelled_operations_never_swap_answers(in_store, event):
    """A storm of cancelled reads leaves no connection with a foreign answer in it, and none is lost from the pool."""
    users = [f"u{n}" for n in range(20)]
    chance = random.Random(7)  # noqa: S311 -- which reads are cancelled is no secret

    async def scenario(store):
        await store.append([event(user_id=user_id, item_id=f"item-of-{user_id}") for user_id in users])
        wrong = 0

        async def read_some(n):
            nonlocal wrong
            user_id = users[n % len(users)]
            task = asyncio.ensure_future(store.read_many([user_id]))
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.002)
                task.cancel()
            try:
                [history] = await task
            except (asyncio.CancelledError, StoreUnavailable):
                return
            wrong += history.item_ids != [f"item-of-{user_id}"]

        for start in range(0, 600, 30):
            await asyncio.gather(*(read_some(start + n) for n in range(30)))
        answers = await asyncio.gather(*(store.read_many([user_id]) for user_id in users * 5))
        return wrong, [history.item_ids for [history] in answers]

    wrong, answers = in_store(scenario, read_timeout_s=1.0)
    assert wrong == 0
    assert answers == [[f"item-of-{user_id}"] for user_id in users * 5]


def test_a_cancelled_append_is_not_told_as_an_outage(in_store, event):
    """Who goes away gets CancelledError, and no error is counted."""
    kinds: list[str] = []

    async def scenario(store):
        task = asyncio.ensure_future(store.append([event(event_id="e")]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    in_store(scenario, on_error=kinds.append)
    assert kinds == []


@pytest.mark.parametrize("lost", ["unix:///nowhere/store.sock", "redis://127.0.0.1:1"])
def test_a_store_that_was_never_there_is_unavailable(lost, event):
    """A missing socket or a closed port is StoreUnavailable with a fixed text, told to the error hook."""
    kinds: list[str] = []

    async def scenario():
        store = HistoryStore(connect(lost), on_error=kinds.append)
        with pytest.raises(StoreUnavailable) as raised:
            await store.append([event()])
        await store.close()
        return raised.value.detail

    assert asyncio.run(scenario()) == StoreUnavailable.default_detail
    assert kinds == ["connection"]

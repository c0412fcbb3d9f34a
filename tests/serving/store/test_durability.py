"""A store that may lose events gets none: noticed before the first, at every append, and over when it is safe again."""

import asyncio
import logging

import pytest

from service.errors import StoreNotDurable
from service.store import durability
from service.store.connection import connect
from service.store.durability import SAFE, check_persistence, check_settings
from service.store.history import HistoryStore
from service.store.records import Outcome

UNSAFE = {
    "appendonly": "no",
    "appendfsync": "everysec",
    "no_appendfsync_on_rewrite": "yes",
    "maxmemory_policy": "allkeys-lru",
    "replica_read_only": "no",
}


@pytest.fixture
def at_once(monkeypatch):
    """A store found unsafe is looked at again with the next event."""
    monkeypatch.setattr(durability, "RECHECK_S", 0)


async def _append_when_safe(store, made):
    """Append once the append-only file that was just switched on is written."""
    while True:
        try:
            return await store.append([made])
        except StoreNotDurable:
            await asyncio.sleep(0.02)


def test_there_is_a_case_for_each_setting():
    """The cases below cover what is asked of a store."""
    assert {name.replace("_", "-") for name in UNSAFE} == set(SAFE)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_store_gets_no_events_and_is_read(in_store, settings, event, caplog, name):
    """Nothing is written, the reason and the remedy are logged once, reads go on; set right, events are taken again."""
    setting = name.replace("_", "-")
    kinds: list[str] = []
    in_store(lambda store: store.append([event(event_id="before")]))
    settings(**{name: UNSAFE[name]})

    async def scenario(store):
        for _ in range(3):
            with pytest.raises(StoreNotDurable):
                await store.append([event(event_id="refused")])
        assert kinds == ["unsafe"] * 3
        [found] = await store.read_many(["u1"])
        assert found.version == 1
        assert not store.durable
        settings(**{name: SAFE[setting]})
        return (await _append_when_safe(store, event(event_id="refused"))).outcomes

    with caplog.at_level(logging.WARNING, "service.store.durability"):
        assert in_store(scenario, on_error=kinds.append) == [Outcome.ACCEPTED]
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith(
        f"The store may lose events: refusing them. {setting} is not {SAFE[setting]}: run CONFIG SET"
    )
    assert said[-1] == "The store is safe again: acknowledged events are on disk"
    assert len(said) <= 4  # switched on, the file is written anew first, which is another reason


@pytest.mark.parametrize(("name", "value"), UNSAFE.items())
def test_change_while_running_is_noticed_by_the_next_append(in_store, settings, event, name, value):
    """An event is not acknowledged by a store that was safe a moment ago; sent again later it is there once."""

    async def scenario(store):
        await store.append([event(event_id="before")])
        settings(**{name: value})
        with pytest.raises(StoreNotDurable):
            await store.append([event(event_id="e")])
        with pytest.raises(StoreNotDurable):  # left alone for a while: not asked, and not sent anything
            await store.append([event(event_id="f")])
        assert [one.event_id for one in (await store.export("u1"))[1]] == ["before", "e"]
        settings(**{name: SAFE[name.replace("_", "-")]})
        while not store.durable:  # what readiness does
            await store.ping()
        return (await store.append([event(event_id="e"), event(event_id="f")])).outcomes

    assert in_store(scenario) == [Outcome.DUPLICATE, Outcome.ACCEPTED]


def test_relaxed_takes_events_and_knows(in_store, settings, event, caplog):
    """Asked for, events go to an unsafe store; that it is unsafe is logged and known all the same."""
    settings(appendfsync="no")

    async def scenario(store):
        outcomes = (await store.append([event()])).outcomes
        await store.ping()
        return outcomes, store.durable

    with caplog.at_level(logging.WARNING, "service.store.durability"):
        assert in_store(scenario, durability="relaxed") == ([Outcome.ACCEPTED], False)
    [record] = caplog.records
    assert record.getMessage().startswith("The store may lose events that it acknowledged")


def test_settings_that_cannot_be_read_are_not_safe(store_url, account, event, caplog):
    """A user without CONFIG GET may read histories and store nothing."""

    async def main():
        store = HistoryStore(connect(f"{store_url}?username={account}&password=first"))
        try:
            with pytest.raises(StoreNotDurable):
                await store.append([event()])
            return await store.read_many(["u1"])
        finally:
            await store.close()

    [found] = asyncio.run(main())
    assert found.version == 0
    assert "CONFIG GET cannot be read" in caplog.text


def test_every_append_costs_one_round_trip(in_store, raw, event):
    """The look at the settings travels with the events: after the first, one pipeline each."""

    async def scenario(store):
        await store.append([event(event_id="first")])
        raw.config_resetstat()
        for number in range(5):
            await store.append([event(event_id=f"e{number}")])

    in_store(scenario)
    calls = {name: stat["calls"] for name, stat in raw.info("commandstats").items()}
    assert calls["cmdstat_evalsha"] == 5
    assert calls["cmdstat_config|get"] == 5


def test_write_errors_and_rewrites_of_an_unknown_store_are_faults():
    """A file that cannot be written, and one that may just have been switched on, hold no promise."""
    assert check_persistence({"aof_last_write_status": "ok", "aof_rewrite_in_progress": 0}) == {}
    assert list(check_persistence({"aof_last_write_status": "err"})) == ["aof_last_write_status"]
    for name in ("aof_rewrite_in_progress", "aof_rewrite_scheduled"):
        assert list(check_persistence({name: 1})) == ["aof_rewrite_in_progress"]
    assert check_settings(dict(SAFE)) == {}

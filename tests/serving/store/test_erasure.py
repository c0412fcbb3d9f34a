"""Erasing a user: nothing is left, nothing comes back, and nobody else is touched."""

import inspect

import pytest

from service.errors import StoreNotDurable
from service.store.history import HistoryStore
from service.store.records import Outcome
from service.store.redis_keys import PARTITIONS, digest_user, name_keys

KEYS = name_keys("u1", prefix="nextitem:")


def _neighbour():
    """Another user of the same partition."""
    return next(
        name
        for name in map("n{}".format, range(10 * PARTITIONS))
        if name_keys(name, prefix="nextitem:").log == KEYS.log
    )


def _users(raw):
    return [fields[b"e"] for _, fields in raw.xrange(KEYS.log)]


def test_nothing_of_the_user_is_left(in_store, raw, event, monkeypatch):
    """History, version, marks, order and log entries are gone, over several scans of the log; a neighbour's stay."""
    monkeypatch.setattr("service.store.history.ENTRIES_PER_SCAN", 3)
    other = _neighbour()

    async def scenario(store):
        for number in range(10):
            for user in ("u1", other):
                await store.append([event(user_id=user, event_id=f"e{number}")])
        await store.erase("u1")
        return await store.read_many(["u1", other])

    gone, kept = in_store(scenario)
    assert (gone.version, gone.item_ids) == (0, [])
    assert kept.version == 10
    assert not raw.exists(KEYS.history, KEYS.version, KEYS.marks, KEYS.order)
    assert len(_users(raw)) == 10
    assert not any(b'"u1"' in record for record in _users(raw))
    assert list(raw.hgetall(KEYS.erased)) == [digest_user("u1").encode()]
    assert not any(b"u1" in key for key in raw.scan_iter())


def test_older_events_do_not_come_back(in_store, event):
    """A replay is rejected, under old ids and new, as is one of the future that was stored; a later event is not."""

    async def scenario(store):
        await store.append([event(event_id="old", timestamp_ms=1_000)])
        await store.append([event(event_id="ahead", timestamp_ms=4_000_000_000_000)])
        await store.erase("u1")
        replayed = [
            event(event_id="old", timestamp_ms=1_000),
            event(event_id="older", timestamp_ms=999),
            event(event_id="ahead", timestamp_ms=4_000_000_000_000),
            event(event_id="later", timestamp_ms=4_000_000_000_001),
        ]
        appended = await store.append(replayed)
        return appended, (await store.read_many(["u1"]))[0]

    appended, history = in_store(scenario)
    assert appended.outcomes == [Outcome.ERASED] * 3 + [Outcome.ACCEPTED]
    assert appended.versions == {"u1": 1}
    assert history.version == 1


def test_erasing_again_forgets_no_erasure(in_store, event):
    """An event of the future that was erased stays away after a second erasure, whose own moment is earlier."""
    ahead = event(event_id="ahead", timestamp_ms=4_000_000_000_000)

    async def scenario(store):
        await store.append([ahead])
        await store.erase("u1")
        await store.erase("u1")
        return (await store.append([ahead])).outcomes

    assert in_store(scenario) == [Outcome.ERASED]


def test_erasing_again_and_strangers(in_store, raw, event):
    """Both are done as asked; a rejected event of an erased user makes no keys."""

    async def scenario(store):
        await store.erase("u1")
        await store.erase("u1")
        return (await store.append([event(event_id="old", timestamp_ms=1_000)])).outcomes

    assert in_store(scenario) == [Outcome.ERASED]
    assert sorted(raw.keys()) == [KEYS.erased.encode(), KEYS.erasing.encode()]


def test_damaged_user_can_be_erased(in_store, raw, event):
    """Whatever kind of value the user's keys hold."""
    for key in (KEYS.history, KEYS.version, KEYS.marks, KEYS.order):
        raw.sadd(key, "x")
    in_store(lambda store: store.erase("u1"))
    assert in_store(lambda store: store.append([event(timestamp_ms=4_000_000_000_000)])).outcomes == [Outcome.ACCEPTED]


def test_unsafe_store_promises_no_erasure(in_store, settings):
    """What a power cut could bring back is not answered as erased."""
    settings(appendfsync="everysec")
    with pytest.raises(StoreNotDurable):
        in_store(lambda store: store.erase("u1"))


def test_idle_users_are_forgotten_whole(in_store, raw, event):
    """History, version, marks and order expire at one moment, which moves on with the user's events; the log stays."""
    idle_ms = 50 * 24 * 60 * 60 * 1000
    users_keys = (KEYS.history, KEYS.version, KEYS.marks, KEYS.order)

    def append(event_id):
        in_store(lambda store: store.append([event(event_id=event_id)]), idle_ms=idle_ms)
        return {raw.pexpiretime(key) for key in users_keys}

    [first] = append("a")
    now_ms = int(raw.time()[0]) * 1000
    assert now_ms < first <= now_ms + idle_ms + 2000
    assert append("b") == {first}  # not with every event
    for key in users_keys:
        raw.pexpireat(key, now_ms + idle_ms * 8 // 10)
    [later] = append("c")
    assert later >= first
    assert raw.ttl(KEYS.log) == -1
    for key in users_keys:
        raw.pexpireat(key, 1)
    assert append("a") != {later}
    assert in_store(lambda store: store.read_many(["u1"]))[0].version == 1


def test_times_to_live_are_whole_settings():
    """A day is the least that marks are promised for, a tenth of the time included."""
    from service.settings import Settings  # noqa: PLC0415 - one use

    [least] = [rule.ge for rule in Settings.model_fields["history_days"].metadata if hasattr(rule, "ge")]
    assert least * 0.9 >= 1
    default = inspect.signature(HistoryStore).parameters["idle_ms"].default
    assert default == Settings.model_fields["history_days"].default * 86_400_000


@pytest.fixture
def now_ms(raw):
    """The store's time."""
    seconds, microseconds = raw.time()
    return seconds * 1000 + microseconds // 1000


def test_client_whose_clock_is_ahead_loses_nothing_after_its_erasure(in_store, event, now_ms):
    """What it sent from the future stays erased, event by event; what it does now is accepted."""
    future = [event(event_id=f"ahead-{number}", timestamp_ms=now_ms + 240_000 + number) for number in range(3)]

    async def scenario(store):
        await store.append([event(event_id="past", timestamp_ms=now_ms - 1), *future])
        await store.erase("u1")
        later = event(event_id="now", timestamp_ms=now_ms + 60_000)
        between = event(event_id="between", timestamp_ms=now_ms + 240_001)
        return (await store.append([event(event_id="past", timestamp_ms=now_ms - 1), *future, later, between])).outcomes

    assert in_store(scenario) == [Outcome.ERASED] * 4 + [Outcome.ACCEPTED] * 2


def test_store_whose_clock_is_ahead_rejects_nothing_new(in_store, raw, event, now_ms, monkeypatch):
    """The service's clock is the earlier one and counts; later events that were remembered are erased one by one."""
    monkeypatch.setattr("service.store.history.time.time", lambda: (now_ms - 600_000) / 1000)
    remembered = event(event_id="remembered", timestamp_ms=now_ms - 300_000)

    async def scenario(store):
        await store.append([remembered])
        await store.erase("u1")
        fresh = event(event_id="fresh", timestamp_ms=now_ms - 300_000)
        old = event(event_id="old", timestamp_ms=now_ms - 600_001)
        return (await store.append([remembered, fresh, old])).outcomes

    assert in_store(scenario) == [Outcome.ERASED, Outcome.ACCEPTED, Outcome.ERASED]
    [tombstone] = raw.hvals(KEYS.erased)
    assert b"remembered" not in tombstone


def test_tombstone_of_an_older_version_counts(in_store, raw, event):
    """It is a time alone."""
    raw.hset(KEYS.erased, digest_user("u1"), "2000000000000")

    async def scenario(store):
        events = [
            event(event_id="a", timestamp_ms=2_000_000_000_000),
            event(event_id="b", timestamp_ms=2_000_000_000_001),
        ]
        before = (await store.append(events)).outcomes
        await store.erase("u1")
        return before + (await store.append(events)).outcomes

    assert in_store(scenario) == [Outcome.ERASED, Outcome.ACCEPTED, Outcome.ERASED, Outcome.ERASED]

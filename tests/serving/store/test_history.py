"""The history port, case by case, over both servers."""

import asyncio
import json
from binascii import crc_hqx

import pytest

from service.errors import StartFailed
from service.store.catalogue import CatalogueStore, ItemChange
from service.store.connection import connect
from service.store.history import EVENTS_PER_CALL, HistoryStore
from service.store.operations import OPERATIONS
from service.store.records import History, Outcome
from service.store.redis_keys import name_keys

AT_MS = 1_763_719_498_123
ODD_IDS = [
    "{u1}",
    "u}{1",
    "{}",
    "u:1",
    ":",
    "*",
    "u*",
    "?",
    "[a-z]",
    "$a",
    "u1:",
    "history:{00}:u1",
    "'\"\\",
    "~" * 256,
]


async def _items(store, user_id="u1"):
    return (await store.read_many([user_id]))[0].item_ids


def test_an_accepted_event_is_in_history_and_log(in_store, raw, event):
    """One event is accepted, counted, remembered and logged."""
    made = event(event_id="e", value=1.5, properties={"page": 1})

    async def scenario(store):
        appended = await store.append([made])
        return appended, await store.read_many(["u1"]), await store.export("u1")

    appended, [history], (version, [stored]) = in_store(scenario)
    assert appended.outcomes == [Outcome.ACCEPTED]
    assert appended.versions == {"u1": 1}
    assert history == History(version=1, item_ids=["i1"], last_event_at_ms=AT_MS)
    assert version == 1
    assert (stored.event_id, stored.item_id, stored.type, stored.value, stored.timestamp_ms) == (
        ("e", "i1", "view", 1.5, AT_MS)
    )
    [(_, fields)] = raw.xrange(name_keys("u1", prefix="nextitem:").log)
    assert fields == {b"e": made.log_record()}


def test_an_unknown_user_has_an_empty_history(in_store):
    """Who has no events has version 0, no items and no last time."""

    async def scenario(store):
        return await store.read_many(["nobody"]), await store.export("nobody"), await store.read_many([])

    assert in_store(scenario) == ([History(0, [], None)], (0, []), [])


def test_histories_come_in_the_order_asked(in_store, event):
    """Many users are read at once, the same one twice if wanted."""

    async def scenario(store):
        await store.append([event(user_id=f"u{n}", item_id=f"i{n}") for n in range(5)])
        return await store.read_many(["u3", "nobody", "u0", "u3"])

    assert [history.item_ids for history in in_store(scenario)] == [["i3"], [], ["i0"], ["i3"]]


def test_events_are_ordered_by_time_and_equal_times_by_arrival(in_store, event):
    """Events that come out of order are put in their place, behind those of the same time."""

    async def scenario(store):
        for item_id, at in [("c", 3), ("a", 1), ("b1", 2), ("b2", 2), ("d", 4), ("b3", 2), ("a2", 1)]:
            await store.append([event(item_id=item_id, event_id=item_id, timestamp_ms=AT_MS + at)])
        return await _items(store)

    assert in_store(scenario) == ["a", "a2", "b1", "b2", "b3", "c", "d"]


def test_the_history_keeps_its_newest(in_store, raw, event):
    """With one event more than fits, the oldest goes from the history and stays in the log."""

    async def scenario(store):
        await store.append([event(item_id=f"i{n}", timestamp_ms=AT_MS + n) for n in range(4)])
        return await store.read_many(["u1"])

    [history] = in_store(scenario, history_length=3)
    assert history == History(version=4, item_ids=["i1", "i2", "i3"], last_event_at_ms=AT_MS + 3)
    assert raw.xlen(name_keys("u1", prefix="nextitem:").log) == 4


def test_the_default_length_is_a_thousand(in_store, event):
    """Of 1,001 events 1,000 are remembered, across several script calls."""

    async def scenario(store):
        appended = await store.append([event(item_id=f"i{n}", timestamp_ms=AT_MS + n) for n in range(1001)])
        return appended, await _items(store)

    appended, items = in_store(scenario)
    assert appended.versions == {"u1": 1001}
    assert set(appended.outcomes) == {Outcome.ACCEPTED}
    assert items == [f"i{n}" for n in range(1, 1001)]


def test_a_late_event_is_logged_and_not_remembered(in_store, raw, event):
    """Older than all of a full history: accepted, counted, marked, logged, but not in the history."""

    async def scenario(store):
        await store.append([event(item_id=f"i{n}", timestamp_ms=AT_MS + n) for n in range(3)])
        late = event(item_id="old", event_id="old", timestamp_ms=AT_MS - 1)
        return [await store.append([late]), await store.append([late])], await _items(store)

    (first, again), items = in_store(scenario, history_length=3)
    assert (first.outcomes, first.versions) == ([Outcome.LATE], {"u1": 4})
    assert (again.outcomes, again.versions) == ([Outcome.DUPLICATE], {"u1": 4})
    assert items == ["i0", "i1", "i2"]
    assert raw.xlen(name_keys("u1", prefix="nextitem:").log) == 4


def test_an_event_as_old_as_the_oldest_is_not_late(in_store, event):
    """At the same time as the oldest of a full history it takes that one's place, having arrived later."""

    async def scenario(store):
        await store.append([event(item_id=f"i{n}", timestamp_ms=AT_MS + n) for n in range(3)])
        appended = await store.append([event(item_id="tie", event_id="tie", timestamp_ms=AT_MS)])
        return appended.outcomes, await _items(store)

    assert in_store(scenario, history_length=3) == ([Outcome.ACCEPTED], ["tie", "i1", "i2"])


def test_a_shorter_history_length_takes_hold_at_once(in_store, store_url, event):
    """After the length was lowered, reads are cut and what would be cut off at once is late."""

    async def scenario(store):
        await store.append([event(item_id=f"i{n}", timestamp_ms=AT_MS + n) for n in range(5)])
        shorter = HistoryStore(connect(store_url), history_length=2)
        before = await _items(shorter)
        appended = await shorter.append([event(item_id="x", event_id="x", timestamp_ms=AT_MS + 1)])
        after = await _items(shorter)
        await shorter.close()
        return before, appended.outcomes, after

    assert in_store(scenario) == (["i3", "i4"], [Outcome.LATE], ["i3", "i4"])


def test_sent_again_it_is_a_duplicate_and_changes_nothing(in_store, raw, event):
    """The same id with the same content is stored once, in one request or in several."""

    async def scenario(store):
        first = await store.append([event(event_id="e"), event(event_id="e")])
        again = await store.append([event(event_id="e")])
        return first, again, await _items(store)

    first, again, items = in_store(scenario)
    assert first.outcomes == [Outcome.ACCEPTED, Outcome.DUPLICATE]
    assert again.outcomes == [Outcome.DUPLICATE]
    assert first.versions == again.versions == {"u1": 1}
    assert items == ["i1"]
    assert raw.xlen(name_keys("u1", prefix="nextitem:").log) == 1


def test_a_retry_without_a_time_is_a_duplicate(in_store, event):
    """Sent again seconds later with the same id and no time, an event is the same one."""

    async def scenario(store):
        first = await store.append([event(event_id="e", now_ms=AT_MS)])
        again = await store.append([event(event_id="e", now_ms=AT_MS + 7000)])
        return first.outcomes + again.outcomes, await store.read_many(["u1"])

    outcomes, [history] = in_store(scenario)
    assert outcomes == [Outcome.ACCEPTED, Outcome.DUPLICATE]
    assert history.last_event_at_ms == AT_MS


def test_the_same_id_with_other_content_is_a_conflict(in_store, raw, event):
    """A conflict is told and changes nothing, in one request or in several."""

    async def scenario(store):
        first = await store.append([event(event_id="e"), event(event_id="e", item_id="i2")])
        again = await store.append([event(event_id="e", value=1.0), event(event_id="e")])
        return first, again, await _items(store)

    first, again, items = in_store(scenario)
    assert first.outcomes == [Outcome.ACCEPTED, Outcome.CONFLICT]
    assert again.outcomes == [Outcome.CONFLICT, Outcome.DUPLICATE]
    assert again.versions == {"u1": 1}
    assert items == ["i1"]
    assert raw.xlen(name_keys("u1", prefix="nextitem:").log) == 1


def test_event_ids_are_unique_per_user_only(in_store, event):
    """Two users may use the same event id."""

    async def scenario(store):
        return await store.append([event(event_id="e"), event(event_id="e", user_id="u2", item_id="i2")])

    appended = in_store(scenario)
    assert appended.outcomes == [Outcome.ACCEPTED, Outcome.ACCEPTED]
    assert appended.versions == {"u1": 1, "u2": 1}


def test_outcomes_keep_the_order_given_across_users(in_store, event):
    """Users mixed in one request each get their events in order, and every outcome stands at its event's place."""
    a = event(user_id="a", event_id="1")
    b = event(user_id="b", event_id="1")

    async def scenario(store):
        return await store.append([a, b, a, event(user_id="b", event_id="1", value=2.0), event(user_id="a")])

    appended = in_store(scenario)
    assert [outcome.name for outcome in appended.outcomes] == [
        "ACCEPTED",
        "ACCEPTED",
        "DUPLICATE",
        "CONFLICT",
        "ACCEPTED",
    ]
    assert appended.versions == {"a": 2, "b": 1}


def test_many_events_of_one_user_go_in_portions(in_store, raw, event):
    """More events than one script call takes are all stored, in order, duplicates across the portions included."""
    count = 2 * EVENTS_PER_CALL + 1
    events = [event(item_id=f"i{n}", event_id=f"e{n}") for n in range(count)]

    async def scenario(store):
        return await store.append([*events, events[0]]), await _items(store)

    before = raw.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    appended, items = in_store(scenario)
    assert appended.outcomes == [Outcome.ACCEPTED] * count + [Outcome.DUPLICATE]
    assert appended.versions == {"u1": count}
    assert items == [f"i{n}" for n in range(count)]
    calls = raw.info("commandstats")["cmdstat_evalsha"]["calls"] - before
    assert calls == 2 * 3  # three portions, twice because the script was not loaded yet


def test_marks_beyond_the_number_kept_are_forgotten_once_old(in_store, raw, event):
    """With both limits passed the oldest marks go, in order of arrival, and a forgotten event counts as new."""
    events = [event(item_id=f"i{n}", event_id=f"e{n}") for n in range(5)]

    async def scenario(store):
        await store.append(events)
        return await store.append(events[:1] + events[4:])

    appended = in_store(scenario, marks_kept=3, marks_age_ms=0)
    assert appended.outcomes == [Outcome.ACCEPTED, Outcome.DUPLICATE]
    keys = name_keys("u1", prefix="nextitem:")
    assert set(raw.hkeys(keys.marks)) == {b"e3", b"e4", b"e0"}
    assert [entry.split(b" ")[1] for entry in raw.lrange(keys.order, 0, -1)] == [b"e3", b"e4", b"e0"]


@pytest.mark.parametrize("limits", [{"marks_kept": 3, "marks_age_ms": 60_000}, {"marks_kept": 5, "marks_age_ms": 0}])
def test_marks_stay_while_young_or_few(in_store, raw, event, limits):
    """A mark is kept while either limit protects it."""
    in_store(lambda store: store.append([event(event_id=f"e{n}") for n in range(5)]), **limits)
    keys = name_keys("u1", prefix="nextitem:")
    assert raw.hlen(keys.marks) == raw.llen(keys.order) == 5


def test_old_marks_are_forgotten_a_thousand_a_call(in_store, raw, event):
    """A long backlog of marks is cleared over several calls, so that no script runs long."""
    keys = name_keys("u1", prefix="nextitem:")
    raw.hset(keys.marks, mapping={f"old{n}": "0" * 16 for n in range(2500)})
    raw.rpush(keys.order, *(f"{AT_MS - 10**8:013d} old{n}" for n in range(2500)))

    async def scenario(store):
        left = []
        for n in range(3):
            await store.append([event(event_id=f"new{n}")])
            left.append(raw.hlen(keys.marks))
        return left

    assert in_store(scenario) == [1501, 1000, 1000]
    assert raw.llen(keys.order) == 1000
    assert raw.hexists(keys.marks, "new2")


def test_odd_user_ids_never_touch_each_other(in_store, raw, event):
    """Braces, colons, globs and quotes in user ids stay data: everyone has his own history and nothing else."""

    async def scenario(store):
        await store.append([event(user_id=user_id, item_id=f"item-{n}") for n, user_id in enumerate(ODD_IDS)])
        return await store.read_many([*ODD_IDS, "u1", "u"])

    histories = in_store(scenario)
    assert [history.item_ids for history in histories] == [[f"item-{n}"] for n in range(len(ODD_IDS))] + [[], []]
    logs = raw.keys("nextitem:log:*")
    assert len(raw.keys()) == 4 * len(ODD_IDS) + len(logs)


def test_user_ids_with_delimiters_do_not_collide(in_store, event):
    """Users that differ only in where a colon stands are different users."""
    pairs = [("a:b", "x"), ("a", "b"), ("b", "a:b"), ("a:b:x", "y"), ("a:", "z")]

    async def scenario(store):
        await store.append([event(user_id=user_id, item_id=item_id) for user_id, item_id in pairs])
        return await store.read_many([user_id for user_id, _ in pairs])

    assert [history.item_ids for history in in_store(scenario)] == [[item_id] for _, item_id in pairs]


def _slot(key):
    """The cluster slot of a key: CRC16/XMODEM of its hash tag, as the Redis cluster specification says."""
    start = key.find("{")
    end = key.find("}", start + 1) if start >= 0 else -1
    tag = key[start + 1 : end] if end > start + 1 else key
    return crc_hqx(tag.encode(), 0) % 16384


@pytest.mark.parametrize("user_id", ["u1", *ODD_IDS])
def test_the_keys_of_a_call_share_a_cluster_slot(user_id):
    """All five keys of a user lie in one slot of the 64, which the user id cannot choose."""
    keys = name_keys(user_id, prefix="nextitem:")
    names = [keys.history, keys.version, keys.marks, keys.order, keys.log]
    slots = {_slot(name) for name in names}
    assert len(set(names)) == 5
    assert len(slots) == 1
    assert slots <= {_slot(f"{{{partition:02d}}}") for partition in range(64)}


def test_keys_are_named_as_documented():
    """The partition is the checksum of the user id, in two digits: stored data depends on it."""
    assert name_keys("u1", prefix="nextitem:").history == "nextitem:history:{54}:u1"
    assert name_keys("u1", prefix="shop:").log == "shop:log:{54}"


def test_prefixes_part_two_services_on_one_server(in_store, store_url, event):
    """Two stores with different prefixes see nothing of each other."""

    async def scenario(store):
        other = HistoryStore(connect(store_url), prefix="other:")
        await store.append([event()])
        await other.append([event(item_id="i2")])
        items = await _items(store), await _items(other)
        await other.close()
        return items

    assert in_store(scenario) == (["i1"], ["i2"])


@pytest.mark.parametrize("options", [{"history_length": 0}, {"prefix": "shop{1}:"}])
def test_senseless_options_are_refused(store_url, options):
    """A history of nothing, and braces in the prefix, which would steer the slot, raise at once."""
    with pytest.raises(ValueError, match=r"history_length|braces"):
        HistoryStore(connect(store_url), **options)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "http://localhost",
        "redis://localhost:port",
        "redis://localhost?foo=1",
        "unix:///store.sock?foo=1",
        "redis://localhost?db=x",
        "redis://localhost?protocol=9",
        "redis://localhost?retry=3",
        "rediss://localhost?ssl_cert_reqs=maybe",
    ],
)
def test_a_wrong_url_fails_in_one_sentence(url):
    """What is no store URL is refused with the forms that are, without repeating it: it may hold a password."""
    with pytest.raises(StartFailed, match="must begin with redis://, rediss:// or unix://") as raised:
        connect(url)
    assert not url or url not in str(raised.value)


def test_every_operation_is_observed(in_store, event):
    """The hook hears each operation once, by name, with its seconds."""
    heard = []

    async def scenario(store):
        await store.append([event()])
        await store.read_many(["u1"])
        await store.export("u1")
        await store.erase("u1")
        await store.ping()
        await store.inspect()
        await CatalogueStore(store).change([ItemChange("i1", "put", known=False)])
        await CatalogueStore(store).read_version()

    in_store(scenario, observe=lambda operation, seconds: heard.append((operation, 0 < seconds < 5)))
    assert heard == [(operation, True) for operation in OPERATIONS]


def test_a_read_is_one_round_trip_without_a_transaction(in_store, raw, event):
    """Reading 50 users sends GET and LRANGE for each, nothing else, and no MULTI."""
    in_store(lambda store: store.append([event(user_id=f"u{n}") for n in range(50)]))
    raw.config_resetstat()
    in_store(lambda store: store.read_many([f"u{n}" for n in range(50)]))
    calls = {name: stats["calls"] for name, stats in raw.info("commandstats").items()}
    assert calls.pop("cmdstat_get") == calls.pop("cmdstat_lrange") == 50
    assert {name.split("|")[0] for name in calls} <= {
        "cmdstat_config",
        "cmdstat_info",
        "cmdstat_client",
        "cmdstat_hello",
    }


def test_concurrent_appends_lose_nothing(in_store, raw, event):
    """A hundred requests at once, more than there are connections, all count, each once."""

    async def scenario(store):
        appended = await asyncio.gather(
            *(store.append([event(user_id=f"u{n % 7}", event_id=f"e{n}", item_id=f"i{n}")]) for n in range(100))
        )
        return appended, await store.read_many([f"u{n}" for n in range(7)])

    appended, histories = in_store(scenario)
    assert all(one.outcomes == [Outcome.ACCEPTED] for one in appended)
    assert sum(history.version for history in histories) == 100
    assert {item_id for history in histories for item_id in history.item_ids} == {f"i{n}" for n in range(100)}
    records = [json.loads(fields[b"e"]) for key in raw.keys("nextitem:log:*") for _, fields in raw.xrange(key)]
    assert sorted(record["event_id"] for record in records) == sorted(f"e{n}" for n in range(100))

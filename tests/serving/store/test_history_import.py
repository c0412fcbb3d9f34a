"""import.lua against append.lua and against itself, on both servers."""

import asyncio
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.errors import StoreNotDurable, StoreUnavailable
from service.store.connection import connect
from service.store.event import PackedEvent, make_event, pack_event
from service.store.history import DAY_MS, HistoryStore
from service.store.history_import import HistoryImport
from service.store.records import Outcome
from service.store.redis_keys import name_keys

TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
BASE_MS = 1_763_719_498_000
IDLE_MS = 400 * DAY_MS
ALL = 100


def make(at=0, item="i", user="u", value=None, event_type="view"):
    """An event some milliseconds after BASE_MS, with a derived id."""
    return make_event(
        user_id=user,
        item_id=item,
        event_type=event_type,
        now_ms=BASE_MS,
        timestamp_ms=BASE_MS + at,
        value=value,
    )


def pack(event, *, logged=False):
    """An event as the import takes it."""
    record = event.log_record(imported=True) if logged else b""
    return PackedEvent(event.event_id, event.digest, event.entry(), record)


class Files:
    """The import over a store, of lists of events of one user each."""

    def __init__(self, store, *, history_length=ALL, logged=False):
        self._import = HistoryImport(store, history_length=history_length, idle_ms=IDLE_MS)
        self._logged = logged

    async def merge(self, users):
        """Merge, and give the outcomes."""
        return await self._import.merge(
            [(events[0].user_id, [pack(event, logged=self._logged) for event in events]) for events in users if events]
        )


def look(raw, user="u", prefix="nextitem:"):
    """Everything that the store holds of a user, but for when."""
    keys = name_keys(user, prefix=prefix)
    return {
        "history": raw.lrange(keys.history, 0, -1),
        "version": int(raw.get(keys.version) or 0),
        "marks": raw.hgetall(keys.marks),
        "order": [entry[14:] for entry in raw.lrange(keys.order, 0, -1)],
        "log": [fields[b"e"] for _, fields in raw.xrange(keys.log)],
    }


@pytest.fixture
def merge(in_store):
    """Merge events of one user, and give the outcomes."""

    def run(*events, **options):
        return in_store(lambda store: Files(store, **options).merge([events]))

    return run


@pytest.mark.parametrize("value", [None, 0.0, -1.5, 1e300, 3.0])
@pytest.mark.parametrize("item", ["i", 'a"\\b', "~" * 256])
def test_packing_is_making(item, value):
    """What the import makes of an event is what POST /events makes of it."""
    event = make(item=item, value=value)
    for logged in (False, True):
        packed = pack_event("u", item, "view", value, event.timestamp_ms, record=logged)
        assert packed == pack(event, logged=logged)


EVENTS = st.lists(
    st.fixed_dictionaries(
        {"at": st.integers(0, 9), "item": st.sampled_from("ab"), "value": st.sampled_from([None, None, None, 0.5])}
    ),
    max_size=12,
)


@given(live=EVENTS, imported=EVENTS, history_length=st.integers(1, 8), logged=st.booleans())
@settings(
    max_examples=60 * TIMES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_merging_is_appending(store_url, raw, live, imported, history_length, logged):  # noqa: PLR0917 - drawn
    """Outcomes, history, marks and version are those of POST /events in order of time, but late events are not stored.

    And once more, without the marks: nothing changes.
    """
    raw.flushall()
    before = [make(**one) for one in live]
    events = sorted((make(**one) for one in imported), key=lambda event: event.timestamp_ms)

    async def run():
        one, other = (
            HistoryStore(
                connect(store_url),
                history_length=history_length,
                prefix=prefix,
                read_timeout_s=10.0,
                write_timeout_s=10.0,
            )
            for prefix in ("one:", "other:")
        )
        try:
            for store in (one, other):
                await store.append(before)
            appended = (await one.append(events)).outcomes
            files = Files(other, history_length=history_length, logged=logged)
            logged_before = len(look(raw, prefix="other:")["log"])
            merged = await files.merge([events])
            first = look(raw, prefix="other:")
            raw.delete(name_keys("u", prefix="other:").marks, name_keys("u", prefix="other:").order)
            again = await files.merge([events])
        finally:
            await one.close()
            await other.close()
        return appended, logged_before, merged, first, again

    appended, logged_before, merged, first, again = asyncio.run(run())
    expected = look(raw, prefix="one:")
    assert merged == appended
    late = appended.count(Outcome.LATE)
    assert first["history"] == expected["history"]
    assert first["version"] == expected["version"] - late
    assert first["marks"].items() <= expected["marks"].items()
    assert len(first["marks"]) == len(first["order"]) == len(expected["marks"]) - late
    assert len(first["log"]) - logged_before == (merged.count(Outcome.ACCEPTED) if logged else 0)
    assert Outcome.ACCEPTED not in again
    assert {**look(raw, prefix="other:"), "marks": {}, "order": []} == {**first, "marks": {}, "order": []}


def test_a_long_log_comes_in_portions(in_store, raw):
    """A user with more events than one call takes, among those of others: the newest are kept, in order."""
    events = [make(at=number, item=f"i{number}") for number in range(450)]
    others = [[make(user=f"u{number}")] for number in range(5)]
    outcomes = in_store(lambda store: Files(store, history_length=300).merge([*others, events]))
    assert outcomes == [Outcome.ACCEPTED] * 455
    held = look(raw)
    assert held["history"] == [event.entry() for event in events[-300:]]
    assert held["version"] == 450
    assert look(raw, user="u3")["version"] == 1


def test_a_log_of_more_than_is_remembered_is_merged_once(merge, raw):
    """Interrupted and begun again without any mark: what was pushed out of the history is not taken for new."""
    events = [make(at=number, item=f"i{number}") for number in range(50)]
    merge(*events[:30], history_length=10, logged=True)
    raw.delete(name_keys("u").marks, name_keys("u").order)
    outcomes = merge(*events, history_length=10, logged=True)
    assert outcomes == [Outcome.LATE] * 20 + [Outcome.DUPLICATE] * 10 + [Outcome.ACCEPTED] * 20
    held = look(raw)
    assert held["version"] == 50
    assert [json.loads(record)["event_id"] for record in held["log"]] == [event.event_id for event in events]


def test_only_what_is_asked_for_is_logged(merge, raw):
    """The log gets nothing, or the record of POST /events with the word that it was imported."""
    merge(make(at=1))
    assert look(raw)["log"] == []
    event = make(at=2, value=4.5)
    merge(event, logged=True)
    [record] = look(raw)["log"]
    assert json.loads(record) == json.loads(event.log_record()) | {"imported": True}


def test_another_value_is_a_conflict_without_marks_too(merge, raw):
    """The event that is stored stays."""
    merge(make(value=1.0))
    raw.delete(name_keys("u").marks, name_keys("u").order)
    assert merge(make(value=2.0)) == [Outcome.CONFLICT]
    assert look(raw)["history"] == [make(value=1.0).entry()]


def test_an_imported_event_is_known_to_post_events(in_store):
    """A client that sends it, too, is told so."""

    async def scenario(store):
        await Files(store).merge([[make()]])
        return (await store.append([make()])).outcomes

    assert in_store(scenario) == [Outcome.DUPLICATE]


def test_erased_users_stay_erased(in_store, raw):
    """Events from before the erasure are not stored again; nothing of the user comes back."""

    async def scenario(store):
        await store.append([make()])
        await store.erase("u")
        return await Files(store).merge([[make(at=-5), make()]])

    assert in_store(scenario) == [Outcome.ERASED] * 2
    assert look(raw)["history"] == []


def test_keys_expire_together_though_written_anew(merge, raw):
    """A history that was replaced has the time of the others."""
    merge(make(at=5))
    merge(make(at=1))
    keys = name_keys("u")
    left = [raw.pexpiretime(key) for key in (keys.history, keys.version, keys.marks, keys.order)]
    assert len(set(left)) == 1
    assert left[0] > 0


def test_a_damaged_user_concerns_nobody_else(in_store, raw):
    """Other kinds of values, and entries that are none: this user's events are not stored, all others' are."""
    raw.set(name_keys("u").history, "no list")
    raw.rpush(name_keys("w").history, "9999999999999 nonsense")

    def scenario(store):
        return Files(store).merge([[make()], [make(user="v")], [make(user="w")]])

    assert in_store(scenario) == [Outcome.DAMAGED, Outcome.ACCEPTED, Outcome.DAMAGED]
    assert raw.get(name_keys("u").history) == b"no list"


def test_events_out_of_order_are_a_callers_error(in_store, raw):
    """Nothing is stored of them."""
    with pytest.raises(StoreUnavailable) as caught:
        in_store(lambda store: Files(store).merge([[make(at=2), make(at=1)]]))
    assert caught.value.kind == "script"
    assert raw.dbsize() == 0


def test_a_full_store_writes_nothing(in_store, raw, settings):
    """Neither for a new user nor for one whose history would be written anew."""
    in_store(lambda store: Files(store).merge([[make(at=5)]]))
    before = look(raw)
    settings(maxmemory=1)
    for user in ("u", "new"):
        with pytest.raises(StoreUnavailable) as caught:
            in_store(lambda store, user=user: Files(store).merge([[make(at=1, user=user)]]))
        assert caught.value.kind == "refused"
    settings(maxmemory=0)
    assert look(raw) == before
    assert look(raw, user="new")["version"] == 0


def test_an_unsafe_store_is_refused(in_store, raw, settings):
    """As POST /events refuses it; relaxed durability takes it."""
    settings(appendfsync="everysec")
    with pytest.raises(StoreNotDurable):
        in_store(lambda store: Files(store).merge([[make()]]))
    assert raw.dbsize() == 0
    assert in_store(lambda store: Files(store).merge([[make()]]), durability="relaxed") == [Outcome.ACCEPTED]

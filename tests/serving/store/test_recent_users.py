"""The users of the newest events: found without a scan, the newest first."""

import pytest

from service.errors import StoreUnavailable
from service.store.recent_users import ENTRIES
from service.store.redis_keys import name_keys


def test_newest_first_and_each_once(in_store, event, raw):  # noqa: ARG001 - raw empties the store
    """Who did something last comes first, however many events there are of each."""

    async def scenario(store):
        for user in ("a", "b", "c", "a"):
            await store.append([event(user_id=user, event_id=f"{user}{number}") for number in range(3)])
            await store.append([event(user_id=user, event_id=f"{user}-again", timestamp_ms=None)])
        return [user.user_id for user in await store.list_recent(10)], await store.list_recent(1)

    found, [newest] = in_store(scenario)
    assert sorted(found) == ["a", "b", "c"]
    assert newest.user_id == found[0]
    assert newest.accepted_ms > 0


def test_no_events_no_users(in_store, raw):  # noqa: ARG001 - as above
    """An empty log has none."""
    assert in_store(lambda store: store.list_recent(20)) == []


def test_erased_users_are_gone(in_store, event, raw):  # noqa: ARG001 - as above
    """An erasure takes the log's entries with it."""

    async def scenario(store):
        await store.append([event(user_id="a"), event(user_id="b")])
        await store.erase("a")
        return await store.list_recent(20)

    assert [user.user_id for user in in_store(scenario)] == ["b"]


def test_only_the_ends_of_the_log_are_looked_at(in_store, raw):
    """Behind so many newer events of a partition, an older user is not seen: the cost has a bound."""
    log = name_keys("a").log
    raw.xadd(log, {"e": '{"user_id":"hidden"}'}, id="1-1")
    for number in range(ENTRIES):
        raw.xadd(log, {"e": '{"user_id":"a"}'}, id=f"2-{number}")
    assert [user.user_id for user in in_store(lambda store: store.list_recent(20))] == ["a"]


@pytest.mark.parametrize(
    "record",
    ["", "no json", "[]", '{"user":1}', '{"user_id":5}', '{"user_id":"a b"}', '{"user_id":"' + "x" * 300 + '"}'],
)
def test_entries_of_others_are_passed_over(in_store, raw, record):
    """What this service did not write names no user."""
    raw.xadd(name_keys("a").log, {"e": record})
    raw.xadd(name_keys("a").log, {"e": '{"user_id":"a"}'})
    assert [user.user_id for user in in_store(lambda store: store.list_recent(20))] == ["a"]


def test_a_log_of_another_type_is_an_error(in_store, raw):
    """A partition that holds something else is told, not hidden."""
    raw.set(name_keys("a").log, "no stream")
    with pytest.raises(StoreUnavailable):
        in_store(lambda store: store.list_recent(20))

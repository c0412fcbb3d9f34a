"""Events on their way out: how they are written, and the requests that they are split into."""

import json
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextitem.client.answers import NOTHING
from nextitem.client.recording import record_many, split
from nextitem.client.requests import MAX_EVENTS, MAX_EVENTS_BYTES, EventRequest, write_json
from nextitem.client.settings import Limits

EVENT: EventRequest = {"user_id": "u", "item_id": "i"}


def count_bytes(part):
    """The size of a request of these events."""
    return len(b'{"events":[]}') + sum(map(len, part)) + len(part) - 1


@given(st.lists(st.sampled_from([10, 200, 2_000, 100_000, 262_131, 262_132, 300_000]), max_size=40), st.integers(0, 5))
def test_parts_are_what_one_request_takes(sizes, thousands):
    """In their order, none lost; a part is beyond the service's limit only where a single event is."""
    written = [b"1" * size for size in sizes] + [b"{}"] * thousands * 700
    parts = [*split(written)]
    assert [event for part in parts for event in part] == written
    for part in parts:
        assert 1 <= len(part) <= MAX_EVENTS
        assert count_bytes(part) <= MAX_EVENTS_BYTES or len(part) == 1
    for part, after in pairwise(parts):  # and none could have held the next event, too
        assert len(part) == MAX_EVENTS or count_bytes([*part, after[0]]) >= MAX_EVENTS_BYTES


def test_no_events_are_no_request():
    """And nothing became of them."""
    with pytest.raises(StopIteration) as ended:
        next(record_many([], strict=False, limits=Limits()))
    assert ended.value.value == NOTHING


def test_strict_events_go_out_together_or_not_at_all():
    """Two requests could not be refused as one."""
    with pytest.raises(ValueError, match="strict events go out together"):
        next(record_many([EVENT] * 1001, strict=True, limits=Limits()))


def test_times_are_written_with_their_zone():
    """A datetime as RFC 3339; other forms are the service's to read."""
    for zone, end in ((UTC, "+00:00"), (timezone(timedelta(hours=-3)), "-03:00")):
        moment = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=zone)
        assert json.loads(write_json({**EVENT, "timestamp": moment}))["timestamp"] == "2026-01-02T03:04:05.678900" + end
    with pytest.raises(ValueError, match="needs a zone"):
        write_json({**EVENT, "timestamp": datetime(2026, 1, 2)})  # noqa: DTZ001 - the mistake


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_json_has_no_form_for_is_not_sent(value):
    """The caller learns it before anything goes out."""
    with pytest.raises(ValueError, match=r".+"):
        write_json({**EVENT, "properties": {"p": value}})


def test_other_objects_are_refused():
    """By their type, not their content."""
    with pytest.raises(TypeError, match="set is nothing that JSON has"):
        write_json({**EVENT, "properties": {"p": {"secret"}}})

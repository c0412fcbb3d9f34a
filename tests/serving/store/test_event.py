"""Events: their ids, digests, entries and log records."""

import json
import re

import pytest

from model.contract.event_archive import COLUMNS, EVENT_KEY, REQUIRED
from service.store.event import EVENT_ID_PATTERN, make_event

AT_MS = 1_763_719_498_123


def test_entry_has_five_words(event):
    """An entry is five words parted by single spaces, whatever punctuation the ids hold."""
    entry = event(item_id="a/b:{}", event_id="e-1", value=2.5, timestamp_ms=AT_MS).entry()
    assert entry == b"1763719498123 a/b:{} view 2.5 e-1"


def test_entry_pads_early_times_and_marks_no_value(event):
    """A time of the year 2000 takes 13 digits as well, and no value is a dash."""
    assert event(event_id="e", timestamp_ms=946_684_800_000).entry() == b"0946684800000 i1 view - e"


@pytest.mark.parametrize("value", [0.1, 1e300, -0.0, 5e-324])
def test_entry_keeps_every_bit_of_a_value(event, value):
    """A value read back from an entry is the very float that was given."""
    assert repr(float(event(value=value).entry().split(b" ")[3])) == repr(value)


def test_log_record_holds_what_trainings_read():
    """A record has every name of the archive's format, with a value of its type."""
    record = json.loads(
        make_event(user_id="u", item_id="i", event_type="view", now_ms=1, event_id="e", value=2).log_record()
    )
    assert {name: type(record[name]) for name in COLUMNS} == COLUMNS
    assert {*EVENT_KEY, *REQUIRED} <= set(COLUMNS)


def test_log_record_holds_everything(event):
    """The log keeps all fields under the names of POST /events."""
    made = event(
        event_id="e", value=1, timestamp_ms=AT_MS, recommendation_id="r", properties={"page": 2, "vip": True, "x": None}
    )
    assert json.loads(made.log_record()) == {
        "event_id": "e",
        "user_id": "u1",
        "item_id": "i1",
        "type": "view",
        "value": 1.0,
        "timestamp": AT_MS,
        "recommendation_id": "r",
        "properties": {"page": 2, "vip": True, "x": None},
    }


def test_id_is_derived_from_user_item_type_and_time(event):
    """Without an id, the same user, item, type and time make the same valid id, and any other makes another."""
    first = event(timestamp_ms=AT_MS)
    assert first.event_id == event(timestamp_ms=AT_MS, now_ms=AT_MS + 5, value=3.0).event_id
    others = [
        event(timestamp_ms=AT_MS + 1),
        event(timestamp_ms=AT_MS, user_id="u2"),
        event(timestamp_ms=AT_MS, item_id="i2"),
        event(timestamp_ms=AT_MS, event_type="click"),
    ]
    assert len({first.event_id, *(other.event_id for other in others)}) == 5
    assert first.event_id.startswith("d.")
    assert re.fullmatch(EVENT_ID_PATTERN, first.event_id)


def test_derived_id_cannot_be_steered_by_delimiters(event):
    """Moving a character between neighbouring fields makes another id."""
    one = event(user_id="a:b", item_id="c", timestamp_ms=AT_MS)
    two = event(user_id="a", item_id="b:c", timestamp_ms=AT_MS)
    assert one.event_id != two.event_id


def test_id_is_random_without_a_time(event):
    """With neither id nor time, a retry is another event."""
    one, two = event(), event()
    assert one.event_id != two.event_id
    assert re.fullmatch(EVENT_ID_PATTERN, one.event_id)
    assert one.timestamp_ms == AT_MS


def test_digest_is_of_the_content_as_given(event):
    """A later retry without a time has the same digest; with any other content it has another."""
    first = event(event_id="e", properties={"a": 1, "b": 2})
    assert first.digest == event(event_id="e", now_ms=AT_MS + 9000, properties={"b": 2, "a": 1}).digest
    assert re.fullmatch("[0-9a-f]{16}", first.digest)
    others = [
        event(event_id="e", properties={"a": 1, "b": 3}),
        event(event_id="e", properties={"a": 1, "b": 2}, value=1.0),
        event(event_id="e", properties={"a": 1, "b": 2}, item_id="i2"),
        event(event_id="e", properties={"a": 1, "b": 2}, event_type="click"),
        event(event_id="e", properties={"a": 1, "b": 2}, timestamp_ms=AT_MS),
        event(event_id="e", properties={"a": 1, "b": 2}, recommendation_id="r"),
    ]
    assert len({first.digest, *(other.digest for other in others)}) == 7


def test_an_integer_value_is_its_float(event):
    """1 and 1.0 are the same value, so that a client's number format makes no conflict."""
    assert event(event_id="e", value=1).digest == event(event_id="e", value=1.0).digest
    assert event(event_id="e", value=1).entry() == event(event_id="e", value=1.0).entry()


@pytest.mark.parametrize(
    "wrong",
    [
        {"item_id": "a b"},
        {"item_id": ""},
        {"user_id": "u\n"},
        {"user_id": "ü"},
        {"event_type": "page view"},
        {"event_id": "a b"},
        {"event_id": "x" * 65},
        {"timestamp_ms": -1},
        {"timestamp_ms": 10**13},
    ],
)
def test_what_would_break_an_entry_is_refused(wrong):
    """No event exists whose entry would have other than five words, or a time other than 13 digits."""
    with pytest.raises(ValueError, match=r"printable ASCII|event_id|timestamp_ms"):
        make_event(**{"user_id": "u1", "item_id": "i1", "event_type": "view", "now_ms": AT_MS, **wrong})

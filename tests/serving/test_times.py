"""Times: RFC 3339 in, milliseconds, and back."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.times import format_rfc_3339, parse_rfc_3339


@given(st.integers(0, 10**13 - 1))
def test_there_and_back(timestamp_ms):
    """What the service writes, it reads as the same millisecond."""
    assert parse_rfc_3339(format_rfc_3339(timestamp_ms)) == timestamp_ms


@given(st.text(alphabet="0123456789-:TZ.+ tz", max_size=40))
def test_anything_else_is_a_value_error(text):
    """No text raises anything but ValueError."""
    with contextlib.suppress(ValueError):
        assert isinstance(parse_rfc_3339(text), int)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:60Z",
        "2026-02-30T00:00:00Z",
        "20260102T030405Z",
        "2026-01-02T03:04Z",
    ],
)
def test_what_is_no_rfc_3339(text):
    """No zone, no second, or no such moment."""
    with pytest.raises(ValueError, match=r"RFC 3339|range|month|second"):
        parse_rfc_3339(text)


def test_the_ends_of_the_calendar():
    """A zone may take a time out of the calendar; that is an odd number of milliseconds, or a ValueError."""
    assert parse_rfc_3339("0001-01-01T00:00:00+23:59") < parse_rfc_3339("0001-01-01T00:00:00Z")

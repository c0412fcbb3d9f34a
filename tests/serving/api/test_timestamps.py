"""Times: RFC 3339 in, milliseconds, and back."""

import re
from calendar import monthrange
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.timestamps import format_rfc_3339, parse_rfc_3339


@given(st.integers(0, 10**13 - 1))
def test_there_and_back(timestamp_ms):
    """What the service writes, it reads as the same millisecond."""
    assert parse_rfc_3339(format_rfc_3339(timestamp_ms)) == timestamp_ms


def two_digits(last):
    """Zero to one more than what is allowed."""
    return st.integers(0, last + 1)


@given(
    date=st.tuples(st.integers(0, 9999), two_digits(12), two_digits(31)),
    at=st.tuples(two_digits(23), two_digits(59), two_digits(59)),
    fraction=st.one_of(st.just(""), st.text("0123456789", min_size=1, max_size=9)),
    zone=st.one_of(st.none(), st.tuples(st.sampled_from("+-"), two_digits(23), two_digits(59))),
    marks=st.tuples(st.sampled_from("Tt "), st.sampled_from("Zz")),
)
def test_right_in_form_it_is_what_the_calendar_says(date, at, fraction, zone, marks):
    """Each number may be one too large, and then it is a ValueError; else the time is what arithmetic makes of it."""
    sign, zone_hours, zone_minutes = zone or ("+", 0, 0)
    text = "{:04}-{:02}-{:02}".format(*date) + marks[0] + "{:02}:{:02}:{:02}".format(*at)
    text += f".{fraction}" if fraction else ""
    text += f"{sign}{zone_hours:02}:{zone_minutes:02}" if zone else marks[1]
    year, month, day = date
    days = monthrange(year, month)[1] if year and 1 <= month <= 12 else 0
    if 1 <= day <= days and at <= (23, 59, 59) and max(at[1:]) < 60 and zone_hours < 24 and zone_minutes < 60:
        midnight = 86_400_000 * (datetime(year, month, day, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
        offset = (zone_hours * 60 + zone_minutes) * (-1 if sign == "-" else 1)
        of_day = ((at[0] * 60 + at[1] - offset) * 60 + at[2]) * 1000
        assert parse_rfc_3339(text) == midnight + of_day + int(f"{fraction}000"[:3])
    else:
        with pytest.raises(ValueError, match=r"."):
            parse_rfc_3339(text)


@given(
    text=st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.678+09:10"]),
    at=st.integers(0, 28),
    cut=st.integers(0, 2),
    put=st.text("0123456789-:TZ.,+\N{MINUS SIGN}\N{ARABIC-INDIC DIGIT ONE} \n", max_size=2),
)
def test_a_slip_of_the_pen_is_a_time_or_a_value_error(text, at, cut, put):
    """One place is changed, left out or doubled: what is read is of the grammar, letter by letter."""
    slip = text[:at] + put + text[at + cut :]
    grammar = r"[0-9]{4}(-[0-9]{2}){2}[Tt ][0-9]{2}(:[0-9]{2}){2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-5][0-9])"
    try:
        parse_rfc_3339(slip)
    except ValueError:
        assert slip != text
    else:
        assert re.fullmatch(grammar, slip)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:60Z",
        "2026-02-30T00:00:00Z",
        "20260102T030405Z",
        "2026-01-02T03:04Z",
        "2026-01-02T03:04:05+00:60",
        "2026-01-02T03:04:05-24:00",
    ],
)
def test_what_is_no_rfc_3339(text):
    """No zone, no second, or no such moment."""
    with pytest.raises(ValueError, match=r"RFC 3339|range|month|second"):
        parse_rfc_3339(text)


def test_the_ends_of_the_calendar():
    """A zone may take a time out of the calendar; that is an odd number of milliseconds, or a ValueError."""
    assert parse_rfc_3339("0001-01-01T00:00:00+23:59") < parse_rfc_3339("0001-01-01T00:00:00Z")

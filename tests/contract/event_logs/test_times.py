"""Times of logs: kinds and units told apart, and nothing taken for what it is not."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from model.contract.event_logs.errors import LogError
from model.contract.event_logs.times import TimeFault, TimeReader

NOON = 1_700_000_000_000


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["1700000000", "1700000001"], "epoch seconds"),
        (["1700000000000", "1700000001000"], "epoch milliseconds"),
        (["1700000000000000", "1700000001000000"], "epoch microseconds"),
        (["1700000000000000000", "1700000001000000000"], "epoch nanoseconds"),
        (["1.7e9", " 1700000001.0 "], "epoch seconds"),
        (["2023-11-14T22:13:20Z", "2023-11-14 22:13:21 UTC"], "times with a zone"),
        (["2023-11-15 00:13:20+02", "2023-11-14T17:13:21.000-0500"], "times with a zone"),
        (["2023-11-14 22:13:20", "2023/11/14T22:13:21"], "times without a zone, read in UTC; --time-zone changes that"),
    ],
)
def test_kinds_and_units_are_told_apart(cells, said):
    """By the first ones; two times that are a second apart stay so."""
    times = TimeReader(cells)
    assert [times.read(cell) for cell in cells] == [NOON, NOON + 1000]
    assert times.description == said


def test_numbers_that_tell_nothing_are_seconds_or_like_the_others():
    """0 fits every unit."""
    assert TimeReader(["0", "10"]).read("10") == 10_000
    times = TimeReader(["0", "1700000000000"])
    assert times.read("1700000000000") == NOON
    assert times.read("0") == 0


def test_days_in_eight_digits_are_days():
    """All of them, or they are seconds of 1970; their midnight is one of the zone."""
    times = TimeReader(["20231114", "20240229"], zone="Europe/Berlin")
    assert times.read("20231114") == datetime(2023, 11, 14, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 1000
    assert TimeReader(["20231114", "20231399"]).description == "epoch seconds"
    with pytest.raises(TimeFault, match="the time '1700000000' is a number, but the first one is a day"):
        times.read("1700000000")


def test_clocks_that_skip_and_repeat_hours():
    """02:30 does not exist on one Sunday in Berlin and comes twice on another: the offset before the change counts."""
    times = TimeReader(["2024-05-01"], zone="Europe/Berlin")
    assert times.read("2024-05-01") == 1_714_514_400_000
    assert times.read("2024-03-31 02:30") == 1_711_848_600_000  # 01:30 UTC
    assert times.read("2024-10-27 02:30") == 1_729_989_000_000  # 00:30 UTC


def test_a_unit_may_be_said():
    """Then no number is taken for one of another unit."""
    times = TimeReader(["1000"], unit="ms")
    assert times.read("1700000000") == 1_700_000_000
    assert times.read("1700000000000") == NOON


@pytest.mark.parametrize(
    ("first", "cell", "message"),
    [
        (
            "1700000000",
            "1700000000000",
            "1700000000000 seems to be in milliseconds, but others are in seconds.*--time-unit s",
        ),
        ("1700000000000", "1700000000", "1700000000 seems to be in seconds, but others are in milliseconds"),
        ("1700000000", "soon", "the time 'soon' cannot be read"),
        ("1700000000", "nan", "the time 'nan' cannot be read"),
        ("1700000000", "1_700", "the time '1_700' cannot be read"),
        ("1700000000", "2024-05-01", "names no zone, but the first one is a number: write all times alike"),
        ("2024-05-01", "1700000000", "is a number, but the first one names no zone"),
        ("2024-05-01", "2024-05-01T10:00:00Z", "names a zone, but the first one names no zone"),
        ("2024-05-01T10:00:00Z", "2024-05-01", "names no zone, but the first one names a zone"),
        ("2024-05-01", "2024-02-30", "the time '2024-02-30' is no time"),
        ("2024-05-01", "01.05.2024", "may have day or month first: write 2024-05-31"),
        ("2024-05-01", "1850-01-01", "lies outside the years 1900 to 2286"),
        ("99999999999", "99999999999", "lies outside the years 1900 to 2286.*--time-unit names the unit"),
        ("1700000000", "9" * 1000, r"seems to be in nanoseconds|'9{40}\.\.\.'"),
    ],
)
def test_other_times_are_refused(first, cell, message):
    """What it is and what to do; a cell is shown, and never much of it."""
    with pytest.raises(TimeFault, match=message) as caught:
        TimeReader([first]).read(cell)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../../etc/passwd", "Europe"])
def test_unknown_zones_are_refused(zone):
    """With one that is known."""
    with pytest.raises(LogError, match="give a name such as Europe/Berlin"):
        TimeReader([], zone=zone)

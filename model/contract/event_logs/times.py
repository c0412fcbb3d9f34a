"""Times of a log, in whatever way they are written, as epoch milliseconds.

A log's times are of one kind: numbers since 1970 in one unit, days as 20240531, texts with a zone (RFC 3339), or texts
without one, which are read in the zone that the reader is told. Whatever lies outside the years 1900 to 2286 is no
time.
"""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from model.contract.event_logs.errors import LogError

EARLIEST_MS, LATEST_MS = -2_208_988_800_000, 9_999_999_999_999  # the years 1900 and 2286
SCALES: Mapping[str, float] = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
"""Milliseconds in a unit."""
TIME_UNITS = ("auto", *SCALES)
UNIT_NAMES: Mapping[str, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
BOUNDS: Mapping[str, float] = {"s": 1e11, "ms": 1e14, "us": 1e17, "ns": math.inf}
"""Numbers of smaller size are in that unit. 10^11 ms is March 1973, so that no unit is taken for the next."""
LEAST: Mapping[str, float] = dict(zip(BOUNDS, (0.0, *BOUNDS.values()), strict=False))
"""And not in the one before."""
TELLING = 1e8
"""A smaller number, such as 0, fits every unit and tells nothing."""
FIRST_DAY, LAST_DAY = 19_000_101, 22_860_101
"""Files whose numbers all lie here and are days, as 20240531 is, hold days: as seconds they would all be of 1970."""

NUMBER, DAY, ZONED, NAIVE = "number", "day", "zoned", "naive"
KNOWN = "numbers since 1970, 2024-05-31, 2024-05-31 10:00:00 and RFC 3339 are understood"

_TEXT = re.compile(
    r"(\d{4})([-/])(\d\d)\2(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?: ?(Z|UTC|[+-]\d\d(?::?\d\d)?))?)?"
)
_ANY_ORDER = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b")
_SAID = {NUMBER: "is a number", DAY: "is a day as 20240531", ZONED: "names a zone", NAIVE: "names no zone"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeFault(ValueError):
    """A cell that is no time like the others; the message says what it is, without its place."""


def find_zone(name: str) -> tzinfo:
    """A time zone by its IANA name. Raises LogError."""
    if name == "UTC":  # needs no database
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise LogError(f"there is no time zone {name[:40]!r}: give a name such as Europe/Berlin") from error


def find_kind(cell: str) -> str:
    """NUMBER, ZONED or NAIVE, as a log's first time has it. Raises TimeFault for what is no time."""
    if is_number(cell):
        return NUMBER
    match = _TEXT.fullmatch(cell.strip())
    if match is None:
        raise TimeFault(describe_unread(cell))
    return ZONED if match[9] else NAIVE


def is_number(cell: str) -> bool:
    """Whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell)) and "_" not in cell
    except ValueError:
        return False


def find_unit(size: float) -> str:
    """The unit of numbers of which the largest has this size."""
    return next(unit for unit, bound in BOUNDS.items() if size < bound)


def describe_unread(cell: str) -> str:
    """What is said of a cell that is no time."""
    if _ANY_ORDER.match(cell.strip()):
        return f"the time {cut(cell)} may have day or month first: write 2024-05-31"
    return f"the time {cut(cell)} cannot be read: {KNOWN}"


def describe_other(cell: str, kind: str) -> str:
    """What is said of a cell that is no time of this kind, the kind of the log's first one."""
    try:
        other = find_kind(cell)
    except TimeFault as fault:
        return str(fault)
    if other == kind:  # the 31st of February
        return f"the time {cut(cell)} is no time: {KNOWN}"
    return f"the time {cut(cell)} {_SAID[other]}, but the first one {_SAID[kind]}: write all times alike"


def describe_mixed(number: float, unit: str) -> str:
    """What is said of a number that looks as if it were in another unit than the others."""
    seems = UNIT_NAMES[find_unit(abs(number))]
    return (
        f"the time {number:.15g} seems to be in {seems}, but others are in {UNIT_NAMES[unit]}: write all in one unit, "
        f"or say that they are, --time-unit {unit}"
    )


def describe_far(cell: str) -> str:
    """What is said of a time that is absurd."""
    return (
        f"the time {cut(cell)} lies outside the years 1900 to 2286: {KNOWN}, and --time-unit names the unit of numbers"
    )


def describe_kind(kind: str, unit: str, zone: str) -> str:
    """How a log's times are read, for people."""
    return {
        NUMBER: f"epoch {UNIT_NAMES.get(unit, 'seconds')}",
        DAY: f"days as 20240531, their midnight in {zone}; --time-zone changes that",
        ZONED: "times with a zone",
        NAIVE: f"times without a zone, read in {zone}; --time-zone changes that",
    }[kind]


def cut(cell: str) -> str:
    """A cell as messages show it."""
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}...")


class TimeReader:
    """Reads one cell after the other; a sample of a log's first times decides how."""

    def __init__(self, sample: Iterable[str], *, zone: str = "UTC", unit: str = "auto") -> None:
        """Decide. Raises LogError for an unknown zone, TimeFault where the first time is none."""
        self._zone, self._zone_name = find_zone(zone), zone
        self._checks_unit = unit == "auto"
        cells = list(sample)
        self.kind = find_kind(cells[0]) if cells else NUMBER
        self.unit = unit
        if self.kind == NUMBER and unit == "auto":
            numbers = [float(cell) for cell in cells if is_number(cell)]
            telling = [abs(number) for number in numbers if abs(number) >= TELLING]
            self.unit = find_unit(telling[0]) if telling else "s"
            if numbers and all(_read_day(number) for number in numbers):
                self.kind = DAY

        self._least = LEAST[self.unit] if self.kind == NUMBER else 0.0

    @property
    def description(self) -> str:
        """How the times are read."""
        return describe_kind(self.kind, self.unit, self._zone_name)

    def read(self, cell: str) -> int:
        """Epoch milliseconds. Raises TimeFault."""
        if self.kind == NUMBER:
            time = self._read_number(cell)
        elif self.kind == DAY:
            day = _read_day(float(cell)) if is_number(cell) else None
            if day is None:
                raise TimeFault(describe_other(cell, DAY))
            time = _count(datetime(day.year, day.month, day.day, tzinfo=self._zone))
        else:
            time = self._read_text(cell)
        if not EARLIEST_MS <= time <= LATEST_MS:
            raise TimeFault(describe_far(cell))
        return time

    def _read_number(self, cell: str) -> int:
        try:
            number = float(cell)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or "_" in cell:
            raise TimeFault(describe_other(cell, NUMBER))
        if self._checks_unit and abs(number) >= TELLING and not self._least <= abs(number) < BOUNDS[self.unit]:
            raise TimeFault(describe_mixed(number, self.unit))
        return round(number * SCALES[self.unit])

    def _read_text(self, cell: str) -> int:
        match = _TEXT.fullmatch(cell.strip())
        if match is None or (ZONED if match[9] else NAIVE) != self.kind:
            raise TimeFault(describe_other(cell, self.kind))
        year, _, month, day, hour, minute, second, fraction, _ = match.groups(default="0")
        zone = _read_offset(match[9]) if match[9] else self._zone
        try:
            moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=zone)
            return _count(moment) + int(fraction.ljust(3, "0")[:3])
        except (ValueError, OverflowError) as error:
            raise TimeFault(f"the time {cut(cell)} is no time: {KNOWN}") from error


def _read_day(number: float) -> date | None:
    if not (FIRST_DAY <= number <= LAST_DAY and number.is_integer()):
        return None
    try:
        return date(int(number) // 10_000, int(number) // 100 % 100, int(number) % 100)
    except ValueError:
        return None


def _read_offset(text: str) -> tzinfo:
    if text in ("Z", "UTC"):
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _count(moment: datetime) -> int:
    """Whole milliseconds since 1970; hours that the clock skips or repeats are read by the offset before the change."""
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)

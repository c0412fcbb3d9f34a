"""A log's column of times as epoch milliseconds, by the rules of model/contract/event_logs/times.py."""

from collections.abc import Callable
from datetime import timedelta
from itertools import product

import polars as pl

from model.contract.event_logs.options import LogOptions
from model.contract.event_logs.times import (
    BOUNDS,
    DAY,
    EARLIEST_MS,
    FIRST_DAY,
    KNOWN,
    LAST_DAY,
    LATEST_MS,
    LEAST,
    NAIVE,
    NUMBER,
    SCALES,
    TELLING,
    ZONED,
    TimeFault,
    describe_far,
    describe_kind,
    describe_mixed,
    describe_other,
    describe_unread,
    find_kind,
    find_unit,
)
from training.errors import DataError
from training.logs.tables import RowLocator

_NAIVE_FORMS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_SLASHES, _DASHES = r"^(\d{4})/(\d\d)/(\d\d)", "$1-$2-$3"
_NO_SECONDS = r"([T ]\d\d:\d\d) ?(Z|UTC|[+-]\d\d(?::?\d\d)?)$"
_SHORT_OFFSET = r"(:\d\d(?:\.\d+)?) ?([+-]\d\d)$"
_HOUR = timedelta(hours=1)


def read_times(
    rows: pl.DataFrame, column: pl.Series, options: LogOptions, locator: RowLocator
) -> tuple[pl.Series, str]:
    """A column of `rows` as epoch milliseconds, and how it was read. Raises DataError, which names the column."""
    if column.dtype == pl.String:
        column = column.str.strip_chars()
        column = column.set(column == "", None)
    locator.refuse(rows, column.is_null(), f"no {column.name}")
    if column.dtype == pl.Date or isinstance(column.dtype, pl.Datetime):
        times, said = _read_datetimes(column, options.time_zone)
    elif column.dtype.is_numeric():
        times, said = _read_numbers(rows, column, options, locator)
    elif column.dtype == pl.String:
        times, said = _read_cells(rows, column, options, locator)
    else:
        raise DataError(f"{locator.path}: column {column.name!r} has the type {column.dtype}, not times: {KNOWN}")
    _refuse(rows, column, (times < EARLIEST_MS) | (times > LATEST_MS), locator, describe_far)
    return times.round().cast(pl.Int64), said


def _read_datetimes(column: pl.Series, zone: str) -> tuple[pl.Series, str]:
    """Datetimes and dates of Parquet."""
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone:
        return column.dt.cast_time_unit("ms").to_physical().cast(pl.Float64), describe_kind(ZONED, "", zone)
    times = _place(column.cast(pl.Datetime("ms")), zone)
    return times.to_physical().cast(pl.Float64), describe_kind(NAIVE, "", zone)


def _read_cells(
    rows: pl.DataFrame, column: pl.Series, options: LogOptions, locator: RowLocator
) -> tuple[pl.Series, str]:
    """Cells of text, all of the kind of the first one."""
    try:
        kind = find_kind(column[0])
    except TimeFault:
        first = pl.Series([True]).extend_constant(value=False, n=len(column) - 1)
        _refuse(rows, column, first, locator, describe_unread)
        raise
    if kind == NUMBER:
        return _read_numbers(rows, column, options, locator)
    times = _parse_zoned(column) if kind == ZONED else _place(_parse_naive(column), options.time_zone)
    _refuse(rows, column, times.is_null(), locator, lambda cell: describe_other(cell, kind))
    return times.to_physical().cast(pl.Float64), describe_kind(kind, "", options.time_zone)


def _read_numbers(
    rows: pl.DataFrame, column: pl.Series, options: LogOptions, locator: RowLocator
) -> tuple[pl.Series, str]:
    """Numbers in one unit, or days as 20240531."""
    numbers = column.cast(pl.Float64, strict=False)  # exact up to 2^53
    bad = (numbers.is_null() | ~numbers.is_finite()).fill_null(value=True)
    _refuse(rows, column, bad, locator, lambda cell: describe_other(cell, NUMBER))
    unit = options.time_unit
    if unit == "auto":
        days = _read_days(numbers)
        if days is not None:
            times = _place(days, options.time_zone).to_physical().cast(pl.Float64)
            return times, describe_kind(DAY, "", options.time_zone)
        sizes = numbers.abs()
        telling = sizes >= TELLING
        unit = find_unit(sizes.filter(telling)[0]) if telling.any() else "s"
        mixed = telling & ((sizes < LEAST[unit]) | (sizes >= BOUNDS[unit]))
        _refuse(rows, column, mixed, locator, lambda cell: describe_mixed(float(cell), unit))
    return numbers * SCALES[unit], describe_kind(NUMBER, unit, options.time_zone)


def _read_days(numbers: pl.Series) -> pl.Series | None:
    """Midnights, where all numbers are days."""
    if not numbers.is_between(FIRST_DAY, LAST_DAY).all() or not (numbers == numbers.floor()).all():
        return None
    days = numbers.cast(pl.Int64).cast(pl.String).str.to_date("%Y%m%d", strict=False)
    return None if days.null_count() else days.cast(pl.Datetime("ms"))


def _parse_zoned(column: pl.Series) -> pl.Series:
    """Moments in UTC, null where a cell is none."""
    times = _parse(column, "%+", zone="UTC")
    if times.null_count():
        mended = _mend(column).str.replace(_NO_SECONDS, "$1:00$2").str.replace(_SHORT_OFFSET, "$1$2:00")
        times = times.fill_null(_parse(mended, "%+", zone="UTC"))
    return times


def _parse_naive(column: pl.Series) -> pl.Series:
    """Times on the clock, null where a cell is none."""
    forms = sorted(
        _NAIVE_FORMS, key=lambda form: _parse(_mend(column[:1]), form).null_count()
    )  # most are like the first
    times = _parse(column, forms[0])
    for mend, form in product((False, True), forms):
        if not times.null_count():
            break
        times = times.fill_null(_parse(_mend(column) if mend else column, form))
    return times


def _mend(column: pl.Series) -> pl.Series:
    return column.str.replace(_SLASHES, _DASHES)


def _parse(column: pl.Series, form: str, zone: str | None = None) -> pl.Series:
    if form == "%Y-%m-%d":
        return column.str.to_date(form, strict=False).cast(pl.Datetime("ms"))
    return column.str.to_datetime(form, time_unit="ms", time_zone=zone, strict=False)


def _place(clock: pl.Series, zone: str) -> pl.Series:
    """Moments of times on a zone's clock. Hours that it skips or repeats are read by the offset before the change."""
    if zone == "UTC":
        return clock
    try:
        placed = clock.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        if placed.null_count() > clock.null_count():
            before = (clock - _HOUR).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
            placed = placed.fill_null(before + _HOUR)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"the time zone {zone!r} is unknown here: give a name such as Europe/Berlin") from error
    return placed


def _refuse(
    rows: pl.DataFrame, column: pl.Series, bad: pl.Series, locator: RowLocator, describe: Callable[[str], str]
) -> None:
    """Raise DataError for the first bad cell, if there is one, with what is to be said of it."""
    if bad.any():
        cell = str(column.gather(bad.arg_true()[:1])[0])
        locator.refuse(rows, bad, f"{describe(cell)} (column {column.name!r})")

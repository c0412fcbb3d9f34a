"""Timestamps: RFC 3339 or epoch milliseconds at the API, epoch milliseconds inside the service."""

import re
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache

EARLIEST_MS = 946_684_800_000
"""The year 2000. An older timestamp is in another unit, most likely seconds."""
MAX_AHEAD_MS = 5 * 60 * 1000

_DAY_MS = 24 * 60 * 60 * 1000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)


def now_ms() -> int:
    """The time by this machine's clock."""
    return time.time_ns() // 1_000_000


def parse_rfc_3339(text: str) -> int:
    """Epoch milliseconds of an RFC 3339 time with zone. Raises ValueError when it is anything else."""
    if _RFC_3339.fullmatch(text) is None:
        raise ValueError("not RFC 3339 with a zone")
    try:
        return (datetime.fromisoformat(text.upper()) - _EPOCH) // timedelta(milliseconds=1)
    except OverflowError as error:
        raise ValueError("out of the calendar") from error


def format_rfc_3339(timestamp_ms: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    day, of_day_ms = divmod(timestamp_ms, _DAY_MS)
    minutes, of_minute_ms = divmod(of_day_ms, 60_000)
    hour, minute = divmod(minutes, 60)
    second, millisecond = divmod(of_minute_ms, 1000)
    return f"{_format_date(day)}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z"


@lru_cache(maxsize=1024)
def _format_date(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).date().isoformat()  # the slow part, cached: many times share a date

"""Decodes the store's replies for a user's history.

An error reply is raised as it is. Data that this service did not write raises TypeError or ValueError.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from redis.exceptions import RedisError

from model.contract.event_inputs import Events
from service.store.event import MAX_TIMESTAMP_MS
from service.store.records import History, StoredEvent

FIELDS: Final = 5
"""Words of an entry (event.py)."""

_COUNT_DIGITS: Final = 15
"""Maximum digits of a user's version, as in append.lua."""


def raise_first(replies: Iterable[Any]) -> None:
    """Raise the first error reply, if there is one."""
    for reply in replies:
        if isinstance(reply, RedisError):
            raise reply


def decode_history(version: object, entries: object, *, with_events: bool) -> History:
    """Decode the replies for a user's version and entries. `with_events` adds the event features."""
    words = _split(entries)
    return History(
        _read_count(version),
        words[1::FIELDS],
        _read_time(words[-FIELDS]) if words else None,
        _read_features(words) if with_events else None,
    )


def decode_events(version: object, entries: object) -> tuple[int, list[StoredEvent]]:
    """Decode the replies for a user's version and entries: the version and all events, oldest first."""
    columns = [iter(_split(entries))] * FIELDS
    return _read_count(version), [
        StoredEvent(event_id, item_id, kind, _read_value(value), _read_time(time_ms))
        for time_ms, item_id, kind, value, event_id in zip(*columns, strict=True)
    ]


def _split(entries: object) -> list[str]:
    """The words of all entries, FIELDS for each, in one split: the fastest way in Python."""
    if isinstance(entries, RedisError):
        raise entries
    if not isinstance(entries, list):
        raise TypeError("a history is no list")
    if not entries:
        return []
    words = b" ".join(entries).decode("ascii", "replace").split(" ")
    if len(words) != FIELDS * len(entries):
        raise ValueError("an entry has not five words")
    return words


def _read_count(version: object) -> int:
    if version is None:
        return 0
    if isinstance(version, RedisError):
        raise version
    if not (isinstance(version, bytes) and version.isdigit() and len(version) <= _COUNT_DIGITS):
        raise ValueError("a version is no count")
    return int(version)


def _read_time(word: str) -> int:
    time_ms = int(word)
    if not 0 <= time_ms <= MAX_TIMESTAMP_MS:
        raise ValueError("an entry has no time")
    return time_ms


def _read_value(word: str) -> float | None:
    if word == "-":
        return None
    value = float(word)
    if not math.isfinite(value):
        raise ValueError("an entry has no finite value")
    return value


def _read_features(words: Sequence[str]) -> Events:
    """The event features of each item, from the words of all entries."""
    times, types, values = (words[field::FIELDS] for field in (0, 2, 3))
    return Events(types, list(map(_read_value, values)), list(map(_read_time, times)))

"""An event as the judge reads it: the log's entry, and what the history says of the time before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from model.contract.deployment.live_sums import Skip
from service.store.event import IMPORTED
from service.store.records import History
from service.store.replies import decode_history

_TEXTS: Final = ("user_id", "item_id", "event_id", "type")
_TIME_DIGITS: Final = 13


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An entry of the log."""

    partition: int
    entry_id: str
    accepted_ms: int
    """The store's time when it accepted the event."""
    user_id: str
    item_id: str
    event_id: str
    type: str
    timestamp_ms: int
    recommendation_id: str | None
    imported: bool = False
    """Whether it is from a log file: nobody was recommended anything just before it."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """An entry of the log that the service did not write."""

    partition: int
    entry_id: str
    accepted_ms: int


def parse_entry(partition: int, entry: Any) -> LoggedEvent | Damaged:  # noqa: ANN401 - as the store replies
    """Read an entry of a partition's log."""
    entry_id = entry[0].decode()
    accepted_ms = int(entry_id.partition("-")[0])
    try:
        record = orjson.loads(entry[1][1])
        texts = {name: record[name] for name in _TEXTS}
        timestamp_ms, recommendation_id = record["timestamp"], record.get("recommendation_id")
        sound = all(isinstance(value, str) for value in texts.values()) and type(timestamp_ms) is int
        if not sound or not isinstance(recommendation_id, str | None):
            return Damaged(partition, entry_id, accepted_ms)
        return LoggedEvent(
            partition=partition,
            entry_id=entry_id,
            accepted_ms=accepted_ms,
            timestamp_ms=timestamp_ms,
            recommendation_id=recommendation_id,
            imported=record.get(IMPORTED) is True,
            **texts,
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError, AttributeError):
        return Damaged(partition, entry_id, accepted_ms)


def find_before(event: LoggedEvent, entries: object, *, with_events: bool) -> History | Skip:
    """The user's history before an event, from all remembered entries; or why there is no trial.

    `with_events` adds event features.
    """
    if not isinstance(entries, list):
        return "damaged"
    if not entries:
        return "erased"
    try:
        place = _find_last(event.event_id, entries)
        if place is None:
            return "late" if event.timestamp_ms < int(entries[0][:_TIME_DIGITS]) else "not_found"
        before = decode_history(None, entries[:place], with_events=with_events)
    except (TypeError, ValueError, AttributeError):
        return "damaged"
    return "seen" if event.item_id in before.item_ids else before


def _find_last(event_id: str, entries: Sequence[bytes]) -> int | None:
    """The place of an event in a history, looked for from its end."""
    ending = b" " + event_id.encode()
    return next((place for place in range(len(entries) - 1, -1, -1) if entries[place].endswith(ending)), None)

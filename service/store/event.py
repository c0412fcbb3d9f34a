"""One interaction of a user with an item, and the three forms in which the store keeps it.

entry   in a history: five fields separated by single spaces, so that a reader takes every fifth word:
        `timestamp_ms item_id type value event_id`, the time padded to 13 digits, `-` for no value
record  in the log, for the next training: everything, as JSON with the names of POST /events
digest  in a deduplication mark: tells a repeat from a conflict
"""

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from model.contract.id_rule import is_valid_id

EVENT_ID_PATTERN = r"[A-Za-z0-9._:-]{1,64}"
MAX_TIMESTAMP_MS = 10**13 - 1
"""The last time that 13 digits hold, in the year 2286."""

IMPORTED = "imported"
"""The name in a record that tells an event from a log file from one that happened while the service ran."""

Property = str | int | float | bool | None

_EVENT_ID = re.compile(EVENT_ID_PATTERN)


@dataclass(frozen=True, slots=True)
class Event:
    """An event ready to be stored. Made by `make_event`."""

    user_id: str
    item_id: str
    event_id: str
    type: str
    value: float | None
    timestamp_ms: int
    recommendation_id: str | None
    properties: Mapping[str, Property] = field(hash=False)
    digest: str

    def __post_init__(self) -> None:
        """Refuse what would break the format of an entry: a space in an id would shift all items of a history."""
        if not (is_valid_id(self.user_id) and is_valid_id(self.item_id) and is_valid_id(self.type)):
            raise ValueError("user_id, item_id and type are printable ASCII without spaces")
        if _EVENT_ID.fullmatch(self.event_id) is None:
            raise ValueError(f"an event_id matches {EVENT_ID_PATTERN}")
        if not 0 <= self.timestamp_ms <= MAX_TIMESTAMP_MS:
            raise ValueError(f"timestamp_ms lies in 0 to {MAX_TIMESTAMP_MS}")

    @property
    def has_derived_id(self) -> bool:
        """Whether its id is derived from its content, as when the client sends none."""
        return self.event_id == _derive_id(self.user_id, self.item_id, self.type, self.timestamp_ms)

    def entry(self) -> bytes:
        """The line that the history keeps."""
        value = "-" if self.value is None else repr(self.value)
        return f"{self.timestamp_ms:013d} {self.item_id} {self.type} {value} {self.event_id}".encode()

    def log_record(self, *, imported: bool = False) -> bytes:
        """The JSON object that the log keeps. `imported` says that the event is from a log file, and judges nothing."""
        record = {
            "event_id": self.event_id,
            "user_id": self.user_id,
            "item_id": self.item_id,
            "type": self.type,
            "value": self.value,
            "timestamp": self.timestamp_ms,
            "recommendation_id": self.recommendation_id,
            "properties": dict(self.properties),
        }
        return orjson.dumps(record | {IMPORTED: True} if imported else record)


def make_event(
    *,
    user_id: str,
    item_id: str,
    event_type: str,
    now_ms: int,
    event_id: str | None = None,
    value: float | None = None,
    timestamp_ms: int | None = None,
    recommendation_id: str | None = None,
    properties: Mapping[str, Property] | None = None,
) -> Event:
    """Complete an event: the default time is `now_ms`, the default id is derived from the content.

    The same user, item, type and time give the same derived id, so a second event with another value is a conflict.
    Without id and time the id is random, so a retry counts twice.
    """
    value = None if value is None else float(value)
    properties = properties or {}
    if event_id is None:
        event_id = _random_id() if timestamp_ms is None else _derive_id(user_id, item_id, event_type, timestamp_ms)
    # The time as given: a later retry without a time is then the same event and not a conflict.
    content = [item_id, event_type, value, timestamp_ms, recommendation_id, properties]
    return Event(
        user_id=user_id,
        item_id=item_id,
        event_id=event_id,
        type=event_type,
        value=value,
        timestamp_ms=now_ms if timestamp_ms is None else timestamp_ms,
        recommendation_id=recommendation_id,
        properties=properties,
        digest=_hash(content, size_bytes=8),
    )


class PackedEvent(NamedTuple):
    """What the store's scripts take of an event."""

    event_id: str
    digest: str
    entry: bytes
    record: bytes


def pack_event(
    user_id: str, item_id: str, event_type: str, value: float | None, timestamp_ms: int, *, record: bool
) -> PackedEvent:
    """What `make_event` makes of an event with neither id nor properties, without the object: for whole log files.

    Nothing is checked: the caller's ids, types and times keep the rules of Event. Without `record` that is empty.
    """
    event_id = _derive_id(user_id, item_id, event_type, timestamp_ms)
    digest = _hash([item_id, event_type, value, timestamp_ms, None, {}], size_bytes=8)
    written = "-" if value is None else repr(value)
    entry = f"{timestamp_ms:013d} {item_id} {event_type} {written} {event_id}".encode()
    if not record:
        return PackedEvent(event_id, digest, entry, b"")
    event = make_event(
        user_id=user_id,
        item_id=item_id,
        event_type=event_type,
        now_ms=timestamp_ms,
        value=value,
        timestamp_ms=timestamp_ms,
    )
    return PackedEvent(event_id, digest, entry, event.log_record(imported=True))


def _derive_id(user_id: str, item_id: str, event_type: str, timestamp_ms: int) -> str:
    return f"d.{_hash([user_id, item_id, event_type, timestamp_ms], size_bytes=16)}"


def _random_id() -> str:
    return f"r.{secrets.token_hex(16)}"


def _hash(content: Sequence[object], *, size_bytes: int) -> str:
    canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(canonical, digest_size=size_bytes).hexdigest()

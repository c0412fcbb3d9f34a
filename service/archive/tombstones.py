"""Erasures as the store keeps them, and which events each of them covers."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import orjson

from model.contract.event_archive import EntryId
from service.store.redis_keys import digest_user


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What erase.lua keeps of an erasure."""

    until_ms: int
    """Events up to this time are erased."""
    entry_id: EntryId
    """Events that the log held up to this entry are erased, too."""
    event_ids: frozenset[str]
    """So are events with these digests of their ids."""
    text: str
    """The tombstone as the store spells it."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the store's spelling; the oldest has the time alone. Raises ValueError."""
        until_ms, *rest = text.split(" ")
        entry_id = parse_id(rest[0]) if rest else (0, 0)
        return cls(int(until_ms), entry_id, frozenset(word.partition(":")[2] for word in rest[1:]), text)

    def covers(self, timestamp_ms: int, event_id: str, entry_id: EntryId | None) -> bool:
        """Whether an event is erased. `entry_id` is not below the event's own; None if none is known."""
        return (
            timestamp_ms <= self.until_ms
            or (entry_id is not None and entry_id <= self.entry_id)
            or (bool(self.event_ids) and digest_event(event_id) in self.event_ids)
        )


Erased = Mapping[str, Tombstone]
"""Tombstones by the digest of the user's id."""


def drop_erased(records: Sequence[bytes], erased: Erased, entry_ids: Sequence[EntryId]) -> list[bytes]:
    """The records without erased events. `entry_ids` has one id for each record, not below the record's own."""
    if not erased:
        return list(records)
    kept = []
    for record, entry_id in zip(records, entry_ids, strict=True):
        event = orjson.loads(record)
        stone = erased.get(digest_user(event["user_id"]))
        if stone is None or not stone.covers(event["timestamp"], event["event_id"], entry_id):
            kept.append(record)
    return kept


def digest_event(event_id: str) -> str:
    """The digest of an erased event's id, as erase.lua makes it."""
    return hashlib.sha1(event_id.encode(), usedforsecurity=False).hexdigest()[:16]


def parse_id(entry_id: str) -> EntryId:
    """Parse an entry id as the store writes it. Raises ValueError."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)

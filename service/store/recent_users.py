"""The users of the newest events: the ends of all partitions of the log, in one round trip, and no scan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from redis.exceptions import RedisError

from model.contract.id_rule import is_valid_id
from service.store.multiplexer import Command
from service.store.redis_keys import PARTITIONS, tag_partition

ENTRIES: Final = 16
"""Newest entries looked at in each partition. So a user is missed only behind so many newer events of its partition."""


@dataclass(frozen=True, slots=True)
class RecentUser:
    """A user, and when the newest of its events that were looked at was accepted: milliseconds since 1970."""

    user_id: str
    accepted_ms: int


def ask_newest(prefix: str) -> Iterator[Command]:
    """The commands whose replies `read_users` takes."""
    for partition in range(PARTITIONS):
        yield ("XREVRANGE", f"{prefix}log:{tag_partition(partition)}", "+", "-", "COUNT", ENTRIES)


def read_users(replies: Sequence[object], limit: int) -> list[RecentUser]:
    """At most `limit` different users, the newest first. Raises the store's error replies.

    Entries that this service did not write are passed over.
    """
    newest: dict[str, int] = {}
    for entries in replies:
        if isinstance(entries, RedisError):
            raise entries
        for user_id, accepted_ms in _read_entries(entries):
            newest[user_id] = max(accepted_ms, newest.get(user_id, 0))
    found = sorted(newest.items(), key=lambda pair: pair[1], reverse=True)
    return [RecentUser(user_id, accepted_ms) for user_id, accepted_ms in found[:limit]]


def _read_entries(entries: object) -> Iterator[tuple[str, int]]:
    for entry in entries if isinstance(entries, list) else ():
        try:
            entry_id, (_, record) = entry
            user_id, accepted_ms = orjson.loads(record)["user_id"], int(entry_id.partition(b"-")[0])
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        if isinstance(user_id, str) and is_valid_id(user_id):
            yield user_id, accepted_ms

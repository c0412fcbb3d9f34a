"""What a store holds, read past the service and all its code but the names of keys."""

import json
from collections import defaultdict
from typing import Any

from redis.asyncio import Redis

from benchmarks.chaos.checker import Entry, Stored
from service.keys import PREFIX, name_keys


async def read_stored(client: Redis) -> Stored:
    """Log, histories and marks of all users."""
    log: defaultdict[str, list[Entry]] = defaultdict(list)
    for key, _ in await _list_keys(client, "log"):
        for _, fields in await _ask(client, "XRANGE", key, "-", "+"):
            record = json.loads(fields[b"e"])
            entry = Entry(record["user_id"], record["event_id"], record["item_id"], record["timestamp"])
            # One in another partition than its user's belongs to nobody.
            log[entry.user_id if name_keys(entry.user_id).log == key else key].append(entry)
    histories = {}
    for key, user_id in await _list_keys(client, "history"):
        lines = await _ask(client, "LRANGE", key, 0, -1)
        histories[user_id] = [_parse(user_id, line) for line in lines]
    marks = {}
    for key, user_id in await _list_keys(client, "marks"):
        marks[user_id] = frozenset(mark.decode() for mark in await _ask(client, "HKEYS", key))
    return Stored(log, histories, marks)


async def _list_keys(client: Redis, kind: str) -> list[tuple[str, str]]:
    """Keys of a kind, each with the user it belongs to."""
    keys = [key.decode() for key in await _ask(client, "KEYS", f"{PREFIX}{kind}:*")]
    return [(key, key.removeprefix(f"{PREFIX}{kind}:").partition(":")[2]) for key in keys]


async def _ask(client: Redis, *command: str | int) -> Any:  # noqa: ANN401 - whatever the store answers
    return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # the library leaves it untyped


def _parse(user_id: str, line: bytes) -> Entry:
    timestamp_ms, item_id, _, _, event_id = line.decode().split(" ")
    return Entry(user_id, event_id, item_id, int(timestamp_ms))

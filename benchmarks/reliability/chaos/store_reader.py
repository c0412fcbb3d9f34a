"""What a store and its archive hold, read past the service and all its code but the names of keys."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from benchmarks.reliability.chaos.checker import Entry, Stored
from service.store.redis_keys import PREFIX, name_keys

_Id = tuple[int, int]


async def read_stored(client: Redis, archive: Path) -> Stored:
    """Log, what is archived of it included, histories and marks of all users."""
    # The log first: what leaves it meanwhile is found in the archive.
    in_store = {
        key: [(_parse_id(entry_id), fields[b"e"]) for entry_id, fields in await _ask(client, "XRANGE", key, "-", "+")]
        for key, _ in await _list_keys(client, "log")
    }
    log: defaultdict[str, list[Entry]] = defaultdict(list)
    for key, entries in in_store.items():
        end, records = _read_segments(archive, key)
        for line in [*records, *(line for entry_id, line in entries if entry_id > end)]:
            record = json.loads(line)
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


def _read_segments(archive: Path, key: str) -> tuple[_Id, list[bytes]]:
    """The last entry id of a partition of the log that is archived, and the records up to there."""
    partition = key[-3:-1]
    segments = []
    for path in archive.glob(f"{partition}-*.jsonl.gz"):
        _, *ids = map(int, path.name.partition(".")[0].split("-"))
        segments.append(((ids[0], ids[1]), (ids[2], ids[3]), path))
    end, lines = (0, 0), []
    for _, last, path in sorted(segments, key=lambda segment: (segment[0], [-number for number in segment[1]])):
        if last > end:  # else it was merged into the one before and is about to be deleted
            lines += gzip.decompress(path.read_bytes()).splitlines()
            end = last
    return end, lines


async def _list_keys(client: Redis, kind: str) -> list[tuple[str, str]]:
    """Keys of a kind, each with the user it belongs to."""
    keys = [key.decode() for key in await _ask(client, "KEYS", f"{PREFIX}{kind}:*")]
    return [(key, key.removeprefix(f"{PREFIX}{kind}:").partition(":")[2]) for key in keys]


async def _ask(client: Redis, *command: str | int) -> Any:  # noqa: ANN401 - whatever the store answers
    return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # the library leaves it untyped


def _parse(user_id: str, line: bytes) -> Entry:
    timestamp_ms, item_id, _, _, event_id = line.decode().split(" ")
    return Entry(user_id, event_id, item_id, int(timestamp_ms))


def _parse_id(entry_id: bytes) -> _Id:
    milliseconds, sequence = map(int, entry_id.split(b"-"))
    return milliseconds, sequence

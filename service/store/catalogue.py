"""Changes and reads the catalogue: what differs from the bundle's items. catalogue.lua documents the keys.

No exception of redis-py leaves CatalogueStore: each failure becomes StoreUnavailable.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from redis.exceptions import ResponseError

from service.store.calls import StoreCalls
from service.store.catalogue_version import read_entry_version, read_version_reply
from service.store.redis_keys import CatalogueKeys
from service.store.replies import raise_first
from service.store.scripts import CATALOGUE, Call

MAX_ITEMS: Final = 1_000_000
"""How many items may differ from the bundle's."""
MAX_LOGGED: Final = 10_000
"""How many changes the log keeps. A worker that lacks more loads all."""
PAGE: Final = 1000
"""How many records or changes one reply holds, about."""

AVAILABLE, UNAVAILABLE, DELETED = b"1", b"0", b"d"
"""First bytes of a record."""

How = Literal["put", "merge", "patch", "delete"]
"""What a change does with what it does not give: catalogue.lua says it."""
Refusal = Literal["missing", "full"]


class ItemChange(NamedTuple):
    """A change of one item. What is None is not given. `known`: the bundle of the model in use has the item."""

    item_id: str
    how: How
    known: bool
    available: bool | None = None
    metadata: bytes | None = None
    """A JSON object."""


class Changed(NamedTuple):
    """How many items were changed, the version after that, and how many ms ago the first change ever was."""

    items: int
    version: int
    age_ms: int


class LoggedChange(NamedTuple):
    """One change as the log has it. `record` is empty where the item is as the bundle has it."""

    entry_id: bytes
    item_id: str
    record: bytes

    @property
    def version(self) -> int:
        """The catalogue's version after it."""
        return read_entry_version(self.entry_id)


class CatalogueStore:
    """The catalogue in the store that `calls` leads to. It refuses changes by the same rule as events."""

    def __init__(self, calls: StoreCalls, *, most_items: int = MAX_ITEMS, most_logged: int = MAX_LOGGED) -> None:
        self._calls = calls
        self._keys = CatalogueKeys(calls.prefix)
        self._limits = (most_items, most_logged)

    async def change(self, changes: Sequence[ItemChange]) -> Changed | Refusal:
        """Make all changes, of different items, in one step, or none. When it returns Changed, they are on disk.

        Raises StoreUnavailable; they may then have been made, and making them again is safe.
        """
        keys = self._keys
        call: Call = [keys.version, keys.items, keys.log, *self._limits]
        for change in changes:
            available = b"" if change.available is None else AVAILABLE if change.available else UNAVAILABLE
            call += (change.item_id, change.how, b"1" if change.known else b"0", available, change.metadata or b"")
        async with self._calls.boundary("change", self._calls.write_timeout_s):
            await self._calls.require_safety()
            [reply] = await self._calls.scripts.run(CATALOGUE, [call])
            raise_first([reply])  # damaged keys
            status, *counts = reply
            return Changed(*map(int, counts)) if status == 0 else "missing" if status == 1 else "full"

    async def read_version(self, *, within_s: float = math.inf) -> object:
        """The reply for the version, as `read_version_reply` takes it."""
        async with self._calls.boundary("catalogue", min(self._calls.read_timeout_s, within_s)):
            [reply] = await self._calls.multiplexer.ask([("GET", self._keys.version)])
            raise_first([reply])
            return reply

    async def read_changes(self, after: bytes, *, within_s: float = math.inf) -> list[LoggedChange]:
        """The change `after`, where the log still has it, and at most PAGE after it; b"" reads from the first one."""
        async with self._calls.boundary("catalogue", min(self._calls.read_timeout_s, within_s)):
            command = ("XRANGE", self._keys.log, after or b"-", b"+", "COUNT", PAGE + bool(after))
            [reply] = await self._calls.multiplexer.ask([command])
            raise_first([reply])
            return [_decode_change(entry_id, fields) for entry_id, fields in reply]

    async def read_last_change(self) -> bytes:
        """The id of the last change, b"" before the first one."""
        async with self._calls.boundary("catalogue", self._calls.write_timeout_s):  # no answer waits for it
            command = ("XINFO", "STREAM", self._keys.log)
            version, info = await self._calls.multiplexer.ask([("GET", self._keys.version), command])
            raise_first([version])
            known = read_version_reply(version)
            if known == 0 and isinstance(info, ResponseError) and "no such key" in str(info):
                return b""
            raise_first([info])
            last: bytes = dict(zip(info[::2], info[1::2], strict=True))[b"last-generated-id"]
            if read_entry_version(last) < known:  # it may be higher: the version was read first
                raise ValueError("the version is not that of the log")
            return last

    async def read_records(self, cursor: int) -> tuple[int, Mapping[str, bytes]]:
        """About PAGE records, and the cursor to go on with, 0 at the end. Begin with 0.

        What changes meanwhile may be there as it was before or after; what does not is there.
        """
        async with self._calls.boundary("catalogue", self._calls.write_timeout_s):  # as above
            [reply] = await self._calls.multiplexer.ask([("HSCAN", self._keys.items, cursor, "COUNT", PAGE)])
            raise_first([reply])
            following, words = reply
            records = zip(words[::2], words[1::2], strict=True)
            return int(following), {item.decode("ascii"): _check_record(record) for item, record in records if item}


def _decode_change(entry_id: bytes, fields: Iterable[bytes]) -> LoggedChange:
    name, item, other, record = fields
    if (name, other) != (b"i", b"r"):
        raise ValueError("a change of the catalogue has other fields")
    return LoggedChange(entry_id, item.decode("ascii"), record and _check_record(record))


def _check_record(record: bytes) -> bytes:
    if record[:1] not in (AVAILABLE, UNAVAILABLE, DELETED):
        raise ValueError("a record of the catalogue has another form")
    return record

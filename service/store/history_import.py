"""Merges the events of a log file into histories. import.lua says why that may be done again and again."""

from collections.abc import Iterator, Sequence
from typing import Final

from redis.exceptions import RedisError

from service.store.calls import StoreCalls
from service.store.event import Event
from service.store.history import EVENTS_PER_CALL
from service.store.records import Outcome
from service.store.redis_keys import digest_user, name_keys
from service.store.scripts import IMPORT, Call

NOT_LOGGED: Final = b""
"""The record of an event that is not for the log."""


class HistoryImport:
    """Merges events into the histories of the store that `calls` leads to. It refuses them by the rule of appends."""

    def __init__(self, calls: StoreCalls, *, history_length: int, idle_ms: int, logged: bool) -> None:
        """`logged` puts the events into the log, too, marked as imported. The others are as for HistoryStore."""
        self._calls = calls
        self._limits = (history_length, idle_ms)
        self._logged = logged

    async def merge(self, users: Sequence[Sequence[Event]]) -> list[Outcome]:
        """Merge the events of some users, each user's in the order of their times. One round trip.

        The outcomes are in the order of the events. LATE: older than everything in a full history, and not stored.
        DAMAGED: as for `HistoryStore.append`. Raises StoreUnavailable for any other failure; merging again is safe.
        """
        portions = [portion for events in users for portion in _divide(events)]
        outcomes: list[Outcome] = []
        async with self._calls.boundary("append", self._calls.write_timeout_s):
            await self._calls.require_safety()
            replies = await self._calls.scripts.run(IMPORT, [self._plan_call(portion) for portion in portions])
            for portion, reply in zip(portions, replies, strict=True):
                if isinstance(reply, RedisError):
                    self._calls.count_error("damaged")
                    keys = name_keys(portion[0].user_id, prefix=self._calls.prefix)
                    self._calls.failures.damaged(keys.partition, reply)
                    outcomes += [Outcome.DAMAGED] * len(portion)
                else:
                    _version, *results = reply
                    outcomes += map(Outcome, results)
        self._calls.note_accepted()
        return outcomes

    def _plan_call(self, events: Sequence[Event]) -> Call:
        user_id = events[0].user_id
        call: Call = [*name_keys(user_id, prefix=self._calls.prefix), *self._limits, digest_user(user_id)]
        for event in events:
            record = event.log_record(imported=True) if self._logged else NOT_LOGGED
            call += (event.event_id, event.digest, event.entry(), record)
        return call


def _divide(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """A user's events in portions of a script call."""
    for start in range(0, len(events), EVENTS_PER_CALL):
        yield events[start : start + EVENTS_PER_CALL]

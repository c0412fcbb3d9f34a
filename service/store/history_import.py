"""Merges the events of a log file into histories. import.lua says why that may be done again and again."""

from collections.abc import Iterator, Sequence

from redis.exceptions import RedisError

from service.store.calls import StoreCalls
from service.store.event import PackedEvent
from service.store.history import EVENTS_PER_CALL
from service.store.records import Outcome
from service.store.redis_keys import digest_user, name_keys
from service.store.scripts import IMPORT, Call

UserEvents = tuple[str, Sequence[PackedEvent]]
"""A user, and events in the order of their times. One without a record is not for the log."""


class HistoryImport:
    """Merges events into the histories of the store that `calls` leads to. It refuses them by the rule of appends."""

    def __init__(self, calls: StoreCalls, *, history_length: int, idle_ms: int) -> None:
        """The limits are as for HistoryStore."""
        self._calls = calls
        self._limits = (history_length, idle_ms)

    async def merge(self, users: Sequence[UserEvents]) -> list[Outcome]:
        """Merge the events of some users, in one round trip.

        The outcomes are in the order of the events. LATE: older than everything in a full history, and not stored.
        DAMAGED: as for `HistoryStore.append`. Raises StoreUnavailable for any other failure; merging again is safe.
        """
        portions = [portion for user in users for portion in _divide(*user)]
        outcomes: list[Outcome] = []
        async with self._calls.boundary("append", self._calls.write_timeout_s):
            await self._calls.require_safety()
            replies = await self._calls.scripts.run(IMPORT, [self._plan_call(*portion) for portion in portions])
            for (user_id, events), reply in zip(portions, replies, strict=True):
                if isinstance(reply, RedisError):
                    self._calls.count_error("damaged")
                    keys = name_keys(user_id, prefix=self._calls.prefix)
                    self._calls.failures.damaged(keys.partition, reply)
                    outcomes += [Outcome.DAMAGED] * len(events)
                else:
                    _version, *results = reply
                    outcomes += map(Outcome, results)
        self._calls.note_accepted()
        return outcomes

    def _plan_call(self, user_id: str, events: Sequence[PackedEvent]) -> Call:
        call: Call = [*name_keys(user_id, prefix=self._calls.prefix), *self._limits, digest_user(user_id)]
        for event in events:
            call += event
        return call


def _divide(user_id: str, events: Sequence[PackedEvent]) -> Iterator[UserEvents]:
    """A user's events in portions of a script call."""
    for start in range(0, len(events), EVENTS_PER_CALL):
        yield user_id, events[start : start + EVENTS_PER_CALL]

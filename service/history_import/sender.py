"""Sends the events of users to the store, several calls under way at a time."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from service.errors import StoreNotDurable, StoreUnavailable
from service.history_import.spill import UserRows
from service.store.event import PackedEvent, pack_event
from service.store.history_import import HistoryImport, UserEvents
from service.store.records import Outcome

MERGE_EVENTS: Final = 2000
"""Events of one round trip, about: enough to make a sync to disk cheap, and few enough to hold up nobody for long."""
UNDER_WAY: Final = 3
"""Round trips under way at a time: while the store works on one, the next is made."""
PATIENCE_S: Final = 60.0
"""How long a store that does not answer is asked again."""
_PAUSE_S: Final = 1.0

Piece = tuple[str, Sequence[str]]
"""A user, and some of this user's rows in the order of their times."""


async def send(
    users: Iterable[UserRows], store: HistoryImport, *, logged: bool, on_done: Callable[[list[Outcome]], None]
) -> None:
    """Send all users' rows, `logged`: for the log, too. `on_done` gets the outcomes of each round trip.

    Raises StoreUnavailable when the store refuses, or does not answer for PATIENCE_S.
    """
    flying: deque[asyncio.Task[None]] = deque()
    try:
        for job in _plan(users):
            while len(flying) >= UNDER_WAY or (flying and flying[0].done()):
                await flying.popleft()
            flying.append(asyncio.create_task(_do(job, store, logged=logged, on_done=on_done)))
            await asyncio.sleep(0)  # it sends its first events now
        while flying:
            await flying.popleft()
    finally:
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)


def _plan(users: Iterable[UserRows]) -> Iterator[list[list[Piece]]]:
    """Jobs: round trips that must follow one another. All of a user are in one job, since order counts."""
    trip: list[Piece] = []
    events = 0
    for user in users:
        if not user.rows:
            continue
        if len(user.rows) > MERGE_EVENTS:
            starts = range(0, len(user.rows), MERGE_EVENTS)
            yield [[(user.user_id, user.rows[start : start + MERGE_EVENTS])] for start in starts]
            continue
        trip.append((user.user_id, user.rows))
        events += len(user.rows)
        if events >= MERGE_EVENTS:
            yield [trip]
            trip, events = [], 0
    if trip:
        yield [trip]


async def _do(
    job: Sequence[Sequence[Piece]], store: HistoryImport, *, logged: bool, on_done: Callable[[list[Outcome]], None]
) -> None:
    for trip in job:
        users = [(user_id, _pack(user_id, rows, logged=logged)) for user_id, rows in trip]
        on_done(await _merge(users, store))


async def _merge(users: Sequence[UserEvents], store: HistoryImport) -> list[Outcome]:
    """Merge, and again while the store does not answer: what it has done already is not done twice."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await store.merge(users)
        except StoreNotDurable:
            raise
        except StoreUnavailable as error:
            if error.kind not in ("connection", "timeout") or time.monotonic() > until_s:
                raise
        await asyncio.sleep(_PAUSE_S)


def _pack(user_id: str, rows: Sequence[str], *, logged: bool) -> list[PackedEvent]:
    """The events as POST /events makes them of the same user, item, type, time and value, their ids included."""
    events = []
    for row in rows:
        time_ms, item_id, event_type, value = row.split(" ")
        number = None if value == "-" else float(value)
        events.append(pack_event(user_id, item_id, event_type, number, int(time_ms), record=logged))
    return events

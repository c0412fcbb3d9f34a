"""Keeps a worker's catalogue as new as the store's: each answer knows every change acknowledged before its request.

Reads of histories bring the store's version along. Where none is read, it is asked for by itself. A worker that is
behind reads the changes it lacks, up to PAGE of them, before it ranks; beyond that, or where the log has them no more,
it loads in the background, and answers say that they are behind meanwhile. Without a store the last known state counts.

Before the first change there is nothing to ask for. So a worker that knew of none LEASE_S ago answers without asking,
and the first changes are acknowledged only when they are LEASE_S old (docs/decisions/0022). All times are those of
time.perf_counter, as a request's are.
"""

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, NamedTuple

from redis.exceptions import RedisError

from model.contract.allowed import Allowed
from model.contract.vocabulary import Vocabulary
from service.catalogue.availability import Availability
from service.catalogue.overlay import Overlay
from service.errors import StoreUnavailable
from service.store.catalogue import PAGE, CatalogueStore, LoggedChange
from service.store.catalogue_version import read_version_reply
from service.store.circuit_breaker import CircuitBreaker

LEASE_S: Final = 0.5
"""How long a worker that found no catalogue need not ask again."""
LOAD_LIMIT_S: Final = 30.0
"""How long a start may wait for the catalogue. A million records take a few seconds."""
RETRY_S: Final = 1.0
"""Shortest time between the beginnings of two attempts to load."""

_log = logging.getLogger(__name__)


class CatalogueView(NamedTuple):
    """The catalogue as an answer sees it. `behind`: the answer may lack changes that were acknowledged before."""

    version: int
    behind: bool
    overlay: Overlay


class LiveCatalogue:
    """One worker's catalogue. Its methods belong to the event loop."""

    def __init__(
        self,
        store: CatalogueStore,
        *,
        breaker: CircuitBreaker,
        on_version: Callable[[int], None] = lambda _version: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`breaker` guards questions for the version. `on_version` gets each version that this worker reaches."""
        self._store = store
        self._breaker = breaker
        self._on_version = on_version
        self._clock = clock
        self._overlay = Overlay()
        self._loaded = False
        """Whether the overlay was the store's at some time."""
        self._fresh_s = float("-inf")
        """The overlay holds every change that the store had at this time."""
        self._availability: weakref.WeakKeyDictionary[Vocabulary, Availability] = weakref.WeakKeyDictionary()
        self._reply: object = None
        """The newest reply for the version, the version in it, and when it was asked for."""
        self._seen = 0
        self._asked_s = float("-inf")
        self._failed_s = float("-inf")
        """When the store last gave no answer."""
        self._asking: asyncio.Task[None] | None = None
        self._asks_one_by_one = asyncio.Lock()
        self._catches_up = asyncio.Lock()
        self._work: asyncio.Task[None] | None = None
        self._retry_s = float("-inf")

    async def load(self, *, within_s: float = LOAD_LIMIT_S) -> None:
        """Load all, for a worker that begins. What does not come in time goes on in the background, or is tried again.

        Until then answers are behind.
        """
        self._begin(self._load)
        if self._work is not None:
            await asyncio.wait([self._work], timeout=within_s)
        if not self._loaded:
            _log.warning(
                "The catalogue could not be loaded: until the store answers, items that are not available may be "
                "recommended, and answers say that they are behind"
            )

    def close(self) -> None:
        """End what goes on in the background."""
        for task in (self._asking, self._work):
            if task is not None:
                task.cancel()

    def note_version(self, reply: object, asked_s: float) -> None:
        """Take the store's reply for the version, which was asked for at `asked_s`."""
        if asked_s < self._asked_s:
            return  # a newer question was answered before
        if reply != self._reply:
            try:
                self._seen = read_version_reply(reply)
            except (ValueError, TypeError, RedisError):  # the next load or question logs it
                self.note_failure(asked_s)
                return
            self._reply = reply
        self._asked_s = asked_s
        if self._loaded and self._seen == self._overlay.version:
            self._fresh_s = max(self._fresh_s, asked_s)

    def note_failure(self, at_s: float) -> None:
        """The store was asked until then and gave no answer."""
        self._failed_s = max(self._failed_s, at_s)

    def is_current(self, since_s: float) -> bool:
        """Whether this worker knows every change acknowledged before `since_s`."""
        return self._fresh_s >= since_s or self._has_lease

    async def follow(self, since_s: float, *, within_s: float) -> None:
        """Get to know every change acknowledged before `since_s`, if that is possible in time."""
        if self._asked_s < since_s and self._failed_s < since_s and not self._has_lease:
            await self._ask(within_s)
        if self._asked_s >= since_s and not self.is_current(since_s):
            await self._catch_up(since_s, within_s)

    def view(self, since_s: float) -> CatalogueView | None:
        """What an answer to a request that came at `since_s` sees; None while no item was ever changed."""
        overlay = self._overlay
        if self._loaded and overlay.version == self._seen == 0:
            return None
        return CatalogueView(overlay.version, not self.is_current(since_s), overlay)

    def find_allowed(self, vocabulary: Vocabulary) -> Allowed | None:
        """Which items of a model may be answered, None if all may."""
        if not self._overlay.hidden:
            return None
        known = self._availability.get(vocabulary)
        if known is None:
            known = self._availability[vocabulary] = Availability(vocabulary, self._overlay.hidden)
        return known.allowed

    @property
    def _has_lease(self) -> bool:
        """Whether there was no catalogue so recently that no change can have been acknowledged since."""
        if self._seen or self._overlay.version or not self._loaded:
            return False
        return self._clock() - max(self._asked_s, self._failed_s) < LEASE_S

    async def _ask(self, within_s: float) -> None:
        """Ask for the version. Those who come while a question is under way share the next one."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_next())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.shield(self._asking)

    async def _ask_next(self) -> None:
        async with self._asks_one_by_one:
            self._asking = None  # who comes from now on wants a later one
            asked_s = self._clock()
            try:
                with self._breaker.guard():
                    self.note_version(await self._store.read_version(), asked_s)
            except StoreUnavailable:
                self.note_failure(self._clock())

    async def _catch_up(self, since_s: float, within_s: float) -> None:
        """Make the changes that this worker lacks, if they are few; else begin to load them."""
        with contextlib.suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(within_s), self._catches_up:
                if not self._loaded and self._seen == 0:
                    self._install(Overlay(), self._asked_s)
                if not self.is_current(since_s):  # else somebody else did it
                    await self._read_changes()

    async def _read_changes(self) -> None:
        if self._works:
            return
        overlay, asked_s, seen, seen_s = self._overlay, self._clock(), self._seen, self._asked_s
        if not self._loaded:
            self._begin(self._load)
            return
        found = await self._store.read_changes(overlay.last_id)
        if overlay is not self._overlay or self._works:
            return  # it is loaded meanwhile
        if not _continues(overlay, found):
            self._begin(self._load)
            return
        for change in found:
            self._apply(change)
        if len(found) < PAGE:
            self._reached(asked_s)
        elif overlay.version >= seen:
            self._reached(seen_s)
        else:
            self._begin(self._read_on)

    @property
    def _works(self) -> bool:
        return self._work is not None and not self._work.done()

    def _begin(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Begin work in the background, unless some goes on or failed a moment ago."""
        if not self._works and self._clock() >= self._retry_s:
            self._work = asyncio.create_task(self._do(work))

    async def _do(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - answers say that they are behind, and the next one tries again
            self._retry_s = self._clock() + RETRY_S
            if not isinstance(error, StoreUnavailable):  # which the store's port logs
                _log.error("Loading the catalogue failed", exc_info=error)

    async def _read_on(self) -> None:
        """Make the changes that the log still has, PAGE by PAGE; load all if it has them no more."""
        asked_s = await self._read_to_end(self._overlay, self._apply)
        if asked_s is None:
            await self._load()
        else:
            self._reached(asked_s)

    async def _load(self) -> None:
        """Load all records, then make the changes that came meanwhile."""
        asked_s: float | None = None
        while asked_s is None:
            overlay = Overlay(await self._store.read_last_change())
            if overlay.last_id:
                await self._read_records(overlay)
            asked_s = await self._read_to_end(overlay, overlay.apply)
        self._install(overlay, asked_s)

    async def _read_records(self, overlay: Overlay) -> None:
        cursor, records = await self._store.read_records(0)
        overlay.add(records)
        while cursor:
            cursor, records = await self._store.read_records(cursor)
            overlay.add(records)

    async def _read_to_end(self, overlay: Overlay, apply: Callable[[LoggedChange], None]) -> float | None:
        """Make all further changes. Returns when the last ones were asked for, None if the log has them no more."""
        while True:
            asked_s = self._clock()
            found = await self._store.read_changes(overlay.last_id)
            if not _continues(overlay, found):
                return None
            for change in found:
                apply(change)
            if len(found) < PAGE:
                return asked_s

    def _install(self, overlay: Overlay, asked_s: float) -> None:
        self._overlay, self._loaded = overlay, True
        self._availability.clear()
        self._reached(asked_s)

    def _apply(self, change: LoggedChange) -> None:
        """Make a change, and bring it into the masks of all models."""
        self._overlay.apply(change)
        available = change.item_id not in self._overlay.hidden
        for vocabulary, availability in self._availability.items():
            index = vocabulary.index_of(change.item_id)
            if index > 0:
                availability.set(index, available=available)

    def _reached(self, asked_s: float) -> None:
        """The overlay holds what the store held at `asked_s`."""
        self._fresh_s = max(self._fresh_s, asked_s)
        if asked_s >= self._asked_s:
            version = self._overlay.version
            self._asked_s, self._seen = asked_s, version
            self._reply = b"%d" % version if version else None
        self._on_version(self._overlay.version)


def _continues(overlay: Overlay, found: Sequence[LoggedChange]) -> bool:
    """Whether changes that were read are those after the overlay's last one.

    Not so if the log is shorter by now, or if the store went back to an earlier state and others came after that.
    """
    if overlay.last_id:
        return bool(found) and found[0].entry_id == overlay.last_id
    return not found or found[0].version == 1

"""Stores the events of a request: appends the valid ones, counts all, and tells the client what became of each."""

from collections.abc import Callable, Container
from operator import itemgetter
from typing import Any

from service.api.responses import Receipt, Rejection
from service.api.timestamps import now_ms
from service.ingest.parser import ParsedEvents, parse_events
from service.store.circuit_breaker import CircuitBreaker
from service.store.history import HistoryStore
from service.store.records import Appended, Outcome
from service.telemetry.metrics import Metrics
from service.telemetry.stage_timer import StageTimer

REFUSALS = {
    Outcome.CONFLICT: ("/event_id", "conflict", "was used before for another event of this user"),
    Outcome.DAMAGED: ("/user_id", "store_damaged", "belongs to a user whose stored data is damaged: keep the event"),
    Outcome.ERASED: ("/timestamp", "erased", "is from before this user was erased"),
}
"""Rejections by the store: pointer, code and sentence."""

DERIVED_ID_CONFLICT = (
    "/timestamp",
    "derived_id_conflict",
    "is that of another event of this user, item and type with different content: give each an event_id",
)
"""The rejection for a conflict of a derived id."""


class Ingestor:
    """Takes the documents of POST /events."""

    def __init__(
        self,
        *,
        store: HistoryStore,
        breaker: CircuitBreaker,
        metrics: Metrics,
        event_types: tuple[str, ...],
        known_items: Callable[[], Container[str]],
    ) -> None:
        """`breaker` guards appends.

        `known_items` returns the catalogue of the model in use: accepted events of other items are counted as unknown.
        """
        self._store = store
        self._breaker = breaker
        self._metrics = metrics
        self._event_types = event_types
        self._known_items = known_items

    async def ingest(self, document: dict[str, Any], timer: StageTimer, *, strict: bool) -> Receipt:
        """Store the valid events durably, all in one call to the store.

        Raises Invalid if none is valid, or if `strict` and one is invalid; then nothing is stored. Raises
        StoreUnavailable if the store may not have all of them.
        """
        parsed = parse_events(
            document,
            strict=strict,
            event_types=self._event_types,
            now_ms=now_ms(),
            on_rejected=self._count_rejected,
        )
        with self._breaker.guard():
            appended = await self._store.append(list(parsed.events.values()))
        self._count(parsed, appended, at_ms=now_ms())
        return _make_receipt(parsed, appended, timer)

    def _count_rejected(self, event_type: object) -> None:
        self._metrics.event_handled(event_type=event_type, result="rejected")

    def _count(self, parsed: ParsedEvents, appended: Appended, *, at_ms: int) -> None:
        known_items = self._known_items()
        for event, outcome in zip(parsed.events.values(), appended.outcomes, strict=True):
            accepted = outcome in (Outcome.ACCEPTED, Outcome.LATE)
            result = "accepted" if accepted else "duplicate" if outcome is Outcome.DUPLICATE else "rejected"
            self._metrics.event_handled(event_type=event.type, result=result)
            if accepted:
                self._metrics.event_accepted((at_ms - event.timestamp_ms) / 1000)
                if event.item_id not in known_items:
                    self._metrics.items_unknown(1)
        self._metrics.events_late(appended.outcomes.count(Outcome.LATE))


def _make_receipt(parsed: ParsedEvents, appended: Appended, timer: StageTimer) -> Receipt:
    count = appended.outcomes.count
    refused = []
    for (index, event), outcome in zip(parsed.events.items(), appended.outcomes, strict=True):
        if outcome in REFUSALS:
            derived = outcome is Outcome.CONFLICT and event.has_derived_id
            pointer, code, detail = DERIVED_ID_CONFLICT if derived else REFUSALS[outcome]
            refused.append(Rejection(index=index, pointer=pointer, code=code, detail=detail))
    return Receipt(
        accepted=count(Outcome.ACCEPTED) + count(Outcome.LATE),
        duplicates=count(Outcome.DUPLICATE),
        late=count(Outcome.LATE),
        rejected=sorted([*parsed.rejected, *refused], key=itemgetter("index")),
        history=appended.versions,
        took_ms=timer.took_ms(),
    )

"""POST /events."""

from operator import itemgetter

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.api.requests import EventRequest, EventsRequest
from service.api.responses import Receipt, Rejection
from service.api.timestamps import now_ms
from service.auth.guard import GuardedRoute, requires_scope
from service.errors import Overloaded, StoreUnavailable
from service.http.body import BODY_PROBLEMS, EVENTS_MAX_BYTES, read_object
from service.http.dependencies import Service, get_service
from service.http.parameters import describe_body, describe_problems, read_flag, write
from service.ingest.parser import ParsedEvents, parse_events
from service.store.records import Appended, Outcome
from service.telemetry.stage_timer import StageTimer

STRICT = "strict"

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

router = APIRouter(route_class=GuardedRoute, tags=["events"])


@router.post(
    "/events",
    summary="Store what users did",
    response_model=Receipt,
    responses={**describe_problems(*BODY_PROBLEMS, StoreUnavailable, Overloaded)},
    openapi_extra={
        **requires_scope("events"),
        **describe_body(EventsRequest.__name__, EventRequest.__name__),
        "parameters": [
            {
                "name": STRICT,
                "in": "query",
                "description": "true: one invalid event makes the service refuse the whole request",
                "schema": {"type": "boolean", "default": False},
            }
        ],
    },
)
async def post_events(request: Request) -> Response:
    """Store events durably. Each accepted event is in its user's history before the answer is sent."""
    service = get_service(request)
    strict = read_flag(request, STRICT)
    document = await read_object(request, max_bytes=EVENTS_MAX_BYTES)
    parsed = parse_events(
        document,
        strict=strict,
        event_types=service.settings.event_types,
        now_ms=now_ms(),
        on_rejected=lambda event_type: service.metrics.event_handled(event_type=event_type, result="rejected"),
    )
    with service.append_breaker.guard():
        appended = await service.store.append(list(parsed.events.values()))
    _count(service, parsed, appended, at_ms=now_ms())
    return write(_receipt(parsed, appended, request.scope["state"]["timer"]))


def _count(service: Service, parsed: ParsedEvents, appended: Appended, *, at_ms: int) -> None:
    for event, outcome in zip(parsed.events.values(), appended.outcomes, strict=True):
        accepted = outcome in (Outcome.ACCEPTED, Outcome.LATE)
        result = "accepted" if accepted else "duplicate" if outcome is Outcome.DUPLICATE else "rejected"
        service.metrics.event_handled(event_type=event.type, result=result)
        if accepted:
            service.metrics.event_accepted((at_ms - event.timestamp_ms) / 1000)
            if event.item_id not in service.model.vocabulary:
                service.metrics.items_unknown(1)
    service.metrics.events_late(appended.outcomes.count(Outcome.LATE))


def _receipt(parsed: ParsedEvents, appended: Appended, timer: StageTimer) -> Receipt:
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

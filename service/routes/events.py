"""POST /events."""

from operator import itemgetter

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.answers import Receipt, Rejection
from service.body import BODY_PROBLEMS, EVENTS_MAX_BYTES, read_object
from service.errors import Overloaded, StoreUnavailable
from service.gate import GuardedRoute, needs
from service.history import Appended, Outcome
from service.intake import Intake, take_in
from service.routes.exchange import describe_body, describe_problems, read_flag, write
from service.schemas import EventRequest, EventsRequest
from service.stopwatch import Stopwatch
from service.times import now_ms
from service.wiring import Service, get_service

STRICT = "strict"

REFUSALS = {
    Outcome.CONFLICT: ("/event_id", "conflict", "was used before for another event of this user"),
    Outcome.ERASED: ("/timestamp", "erased", "lies before the moment at which this user was erased"),
}
"""What the store itself rejects: pointer, code and sentence."""

router = APIRouter(route_class=GuardedRoute)


@router.post(
    "/events",
    summary="Store what users did",
    response_model=Receipt,
    responses={**describe_problems(*BODY_PROBLEMS, StoreUnavailable, Overloaded)},
    openapi_extra={
        **needs("events"),
        **describe_body(EventsRequest.__name__, EventRequest.__name__),
        "parameters": [
            {
                "name": STRICT,
                "in": "query",
                "description": "true: one invalid event refuses the whole request",
                "schema": {"type": "boolean", "default": False},
            }
        ],
    },
)
async def post_events(request: Request) -> Response:
    """Store events durably; each accepted one is in its user's history before the answer leaves."""
    service = get_service(request)
    strict = read_flag(request, STRICT)
    document = await read_object(request, max_bytes=EVENTS_MAX_BYTES)
    intake = take_in(
        document,
        strict=strict,
        event_types=service.settings.event_types,
        now_ms=now_ms(),
        on_rejected=lambda event_type: service.metrics.event_handled(event_type=event_type, result="rejected"),
    )
    with service.append_breaker.guard():
        appended = await service.store.append(list(intake.events.values()))
    _count(service, intake, appended, at_ms=now_ms())
    return write(_receipt(intake, appended, request.scope["state"]["stopwatch"]))


def _count(service: Service, intake: Intake, appended: Appended, *, at_ms: int) -> None:
    for event, outcome in zip(intake.events.values(), appended.outcomes, strict=True):
        accepted = outcome in (Outcome.ACCEPTED, Outcome.LATE)
        result = "accepted" if accepted else "duplicate" if outcome is Outcome.DUPLICATE else "rejected"
        service.metrics.event_handled(event_type=event.type, result=result)
        if accepted:
            service.metrics.event_accepted((at_ms - event.timestamp_ms) / 1000)
            if event.item_id not in service.model.vocabulary:
                service.metrics.items_unknown(1)
    service.metrics.events_late(appended.outcomes.count(Outcome.LATE))


def _receipt(intake: Intake, appended: Appended, stopwatch: Stopwatch) -> Receipt:
    count = appended.outcomes.count
    refused = []
    for index, outcome in zip(intake.events, appended.outcomes, strict=True):
        if outcome in REFUSALS:
            pointer, code, detail = REFUSALS[outcome]
            refused.append(Rejection(index=index, pointer=pointer, code=code, detail=detail))
    return Receipt(
        accepted=count(Outcome.ACCEPTED) + count(Outcome.LATE),
        duplicates=count(Outcome.DUPLICATE),
        late=count(Outcome.LATE),
        rejected=sorted([*intake.rejected, *refused], key=itemgetter("index")),
        history=appended.versions,
        took_ms=stopwatch.took_ms(),
    )

"""POST /events."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.api.event_requests import EventRequest, EventsRequest
from service.api.responses import Receipt
from service.auth.guard import GuardedRoute, requires_scope
from service.errors import Overloaded, StoreUnavailable
from service.http.body import BODY_PROBLEMS, EVENTS_MAX_BYTES, read_object
from service.http.dependencies import get_service
from service.http.parameters import describe_body, describe_problems, read_flag, write

STRICT = "strict"

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
    strict = read_flag(request, STRICT)
    document = await read_object(request, max_bytes=EVENTS_MAX_BYTES)
    timer = request.scope["state"]["timer"]
    return write(await get_service(request).ingestor.ingest(document, timer, strict=strict))

"""Parses the events of a request one by one, so that an invalid event rejects only itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.api.event_requests import MAX_EVENTS, EventRequest
from service.api.responses import Rejection
from service.api.validation import Validator, require_array
from service.errors import FieldError, Invalid
from service.settings import DEFAULT_TYPE
from service.store.event import Event, make_event

_validate = Validator(EventRequest)


@dataclass(frozen=True, slots=True)
class ParsedEvents:
    """The valid events by their index in the request, and a rejection for each invalid one."""

    events: Mapping[int, Event]
    rejected: Sequence[Rejection]


def parse_events(
    document: dict[str, Any],
    *,
    strict: bool,
    event_types: tuple[str, ...],
    now_ms: int,
    on_rejected: Callable[[object], None],
) -> ParsedEvents:
    """Validate the events of a request. Raises Invalid if none is valid, or if `strict` and one is invalid.

    `on_rejected` is called with the type of each rejected event, as given.
    """
    wrapped = "events" in document
    entries = require_array(document, "events", most=MAX_EVENTS) if wrapped else [document]
    context = {"event_types": event_types, "now_ms": now_ms}
    events: dict[int, Event] = {}
    rejected: list[Rejection] = []
    field_errors: list[FieldError] = []
    for index, entry in enumerate(entries):
        try:
            request = _validate(entry, context=context)
        except Invalid as invalid:
            on_rejected(entry.get("type", DEFAULT_TYPE) if isinstance(entry, dict) else None)
            first = invalid.field_errors[0]
            rejected.append(Rejection(index=index, pointer=first.pointer, code=first.code, detail=first.detail))
            under = f"/events/{index}" if wrapped else ""
            field_errors += (
                FieldError(under + field_error.pointer, field_error.code, field_error.detail)
                for field_error in invalid.field_errors
            )
        else:
            events[index] = _make(request, now_ms)
    if rejected and (strict or not events):
        raise Invalid(field_errors)
    return ParsedEvents(events, rejected)


def _make(request: EventRequest, now_ms: int) -> Event:
    return make_event(
        user_id=request.user_id,
        item_id=request.item_id,
        event_type=request.type,
        now_ms=now_ms,
        event_id=request.event_id,
        value=request.value,
        timestamp_ms=request.timestamp,
        recommendation_id=request.recommendation_id,
        properties=request.properties,
    )

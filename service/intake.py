"""The events of a request, each judged by itself, so that a bad one costs only itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from service.answers import Rejection
from service.errors import Fault, Invalid
from service.event import Event, make_event
from service.faults import list_faults
from service.schemas import MAX_EVENTS, EventRequest
from service.settings import DEFAULT_TYPE


@dataclass(frozen=True, slots=True)
class Intake:
    """The valid events by their place in the request, and a rejection for each of the others."""

    events: Mapping[int, Event]
    rejected: Sequence[Rejection]


def take_in(
    document: dict[str, Any],
    *,
    strict: bool,
    event_types: tuple[str, ...],
    now_ms: int,
    on_rejected: Callable[[object], None],
) -> Intake:
    """Judge the events of a request. Raises Invalid when none is valid, or when `strict` and one is not.

    `on_rejected` is told the type of each rejected event as it stands there.
    """
    entries = _open_envelope(document)
    context = {"event_types": event_types, "now_ms": now_ms}
    events: dict[int, Event] = {}
    rejected: list[Rejection] = []
    faults: list[Fault] = []
    for index, entry in enumerate(entries):
        try:
            request = EventRequest.model_validate(entry, context=context)
        except ValidationError as error:
            found = list_faults(error)
            on_rejected(entry.get("type", DEFAULT_TYPE) if isinstance(entry, dict) else None)
            first = found[0]
            rejected.append(Rejection(index=index, pointer=first.pointer, code=first.code, detail=first.detail))
            under = f"/events/{index}" if "events" in document else ""
            faults += (Fault(under + fault.pointer, fault.code, fault.detail) for fault in found)
        else:
            events[index] = _make(request, now_ms)
    if rejected and (strict or not events):
        raise Invalid(faults)
    return Intake(events, rejected)


def _open_envelope(document: dict[str, Any]) -> Sequence[object]:
    if "events" not in document:
        return [document]  # a single event without the envelope
    entries = document["events"]
    if not isinstance(entries, list):
        raise Invalid([Fault("/events", "list_type", "must be an array")])
    if len(document) > 1:
        raise Invalid([Fault("", "extra_forbidden", "holds a field that is unknown")])
    if not entries:
        raise Invalid([Fault("/events", "too_short", "must have at least 1 element")])
    if len(entries) > MAX_EVENTS:
        raise Invalid([Fault("/events", "too_long", f"must have at most {MAX_EVENTS} elements")])
    return entries


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

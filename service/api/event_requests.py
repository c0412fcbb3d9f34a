"""Request schemas of POST /events, as strict as the others (requests.py)."""

from typing import Annotated, Any

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)

from service.api.fields import Id, read_context
from service.api.timestamps import EARLIEST_MS, MAX_AHEAD_MS, parse_rfc_3339
from service.api.validation import refuse
from service.settings import DEFAULT_TYPE
from service.store.event import EVENT_ID_PATTERN

MAX_EVENTS = 1000
MAX_PROPERTIES = 32
MAX_PROPERTIES_BYTES = 1024

EventId = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=f"^{EVENT_ID_PATTERN}$")]


def _check_type(value: str, info: ValidationInfo) -> str:
    types: tuple[str, ...] = read_context(info)["event_types"]
    if value not in types:
        raise refuse("enum", "must be one of {types}", types=", ".join(types))
    return value


def _read_timestamp(value: object, info: ValidationInfo) -> object:
    if value is None:
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError("neither form")  # noqa: TRY301, TRY004 - one error for everything that is not a time
        timestamp_ms = parse_rfc_3339(value) if isinstance(value, str) else value
    except ValueError as error:
        raise refuse("timestamp", "must be RFC 3339 with a zone, or integer milliseconds since 1970") from error
    if not EARLIEST_MS <= timestamp_ms <= read_context(info)["now_ms"] + MAX_AHEAD_MS:
        raise refuse("ts_range", "must lie between the year 2000 and five minutes from now")
    return timestamp_ms


def _check_properties(value: object) -> object:
    if not isinstance(value, dict):
        raise refuse("object_type", "must be an object")
    if len(value) > MAX_PROPERTIES:
        raise refuse("too_long", "must have at most 32 members")
    if any(isinstance(member, dict | list) for member in value.values()):
        raise refuse("flat", "must hold strings, numbers, booleans and nulls only")
    if len(orjson.dumps(value)) > MAX_PROPERTIES_BYTES:
        raise refuse("too_long", "must have at most 1,024 bytes as JSON")
    return value


class EventRequest(BaseModel):
    """One event of POST /events."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    event_id: EventId | None = Field(
        default=None,
        description="unique per user; it identifies duplicates. By default it is derived from user, item, type and "
        "timestamp. Two events that share these but differ in content, such as two ratings in the same instant, need "
        "ids of their own: without them the second is rejected as `derived_id_conflict`. An event with neither id nor "
        "timestamp counts twice when it is sent twice",
    )
    user_id: Id
    item_id: Id
    type: Annotated[str, AfterValidator(_check_type)] = Field(
        default=DEFAULT_TYPE, description="one of the configured event types"
    )
    value: Annotated[float, Field(allow_inf_nan=False)] | None = None
    timestamp: Annotated[
        int | None,
        BeforeValidator(_read_timestamp),
        WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer"}, {"type": "null"}]}),
    ] = Field(default=None, description="RFC 3339 with zone, or milliseconds since 1970; default: now")
    recommendation_id: EventId | None = Field(
        default=None, description="id of the recommendation that led to the event"
    )
    properties: Annotated[
        dict[str, Any],
        BeforeValidator(_check_properties),
        WithJsonSchema(
            {
                "type": "object",
                "maxProperties": MAX_PROPERTIES,
                "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
            }
        ),
    ] = Field(default_factory=dict, description="flat, at most 1,024 bytes as JSON")


class EventsRequest(BaseModel):
    """The body of POST /events: an object with an array of events. A single event may also be sent by itself."""

    model_config = ConfigDict(extra="forbid", strict=True)

    events: list[EventRequest] = Field(min_length=1, max_length=MAX_EVENTS)

"""What a caller may ask, as typed dictionaries: one line a field, with the names and types of the service's OpenAPI.

Both clients take them as keywords, and a test compares them with the document. What a field means, and its limits, are
in docs/reference/http-api.md and in /docs of a running service. Limits of values are the service's to check: it answers
with a pointer and a sentence, which the client raises as Invalid.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NotRequired, Required, TypedDict

Property = str | int | float | bool | None

DEFAULT_TIMEOUT_MS = 300
MIN_TIMEOUT_MS = 10
"""The service's time limit where a request names none, and the least that it takes."""
MAX_EVENTS = 1000
MAX_EVENTS_BYTES = 256 * 1024
"""What the service takes in one POST /events."""


class FilterAll(TypedDict):
    """Allows what every part allows."""

    all: "Sequence[FilterNode]"


class FilterAny(TypedDict):
    """Allows what one of the parts allows."""

    any: "Sequence[FilterNode]"


FilterNot = TypedDict("FilterNot", {"not": "FilterNode"})
"""Allows what its part does not allow."""
FilterIn = TypedDict("FilterIn", {"field": str, "in": Sequence[str | float | bool]})
"""Allows items with one of these values."""


class FilterExists(TypedDict):
    """Allows items that have a value, or those that have none."""

    field: str
    exists: bool


class FilterRange(TypedDict):
    """Allows items with a number within these bounds, one or several."""

    field: str
    gt: NotRequired[float]
    gte: NotRequired[float]
    lt: NotRequired[float]
    lte: NotRequired[float]


FilterNode = FilterAll | FilterAny | FilterNot | FilterIn | FilterExists | FilterRange


class Pin(TypedDict):
    """An item and the rank at which it is to stand."""

    item_id: str
    rank: int


class Boost(TypedDict):
    """What is added to the scores of the items whose metadata matches, for their order. The first match counts."""

    filter: FilterNode
    add: float


class MaxPer(TypedDict):
    """At most `count` items of each value of a metadata field."""

    field: str
    count: int


class RecommendRequest(TypedDict, total=False):
    """The fields of POST /recommend, and of each request of a batch. `user_id`, `items` or both are needed."""

    user_id: str | None
    items: Sequence[str] | None
    k: int
    exclude_seen: bool
    exclude_item_ids: Sequence[str]
    candidate_item_ids: Sequence[str] | None
    filter: FilterNode | None
    min_history_version: int | None
    min_catalogue_version: int | None
    timeout_ms: int
    variant: Literal["champion", "candidate"] | None
    ranker: Literal["auto", "model", "neighbours", "rules", "popular"] | str
    return_metadata: bool | Sequence[str]
    explain: bool
    pins: Sequence[Pin]
    diversity: float
    max_per: MaxPer | None
    boosts: Sequence[Boost]
    scenario: str | None


class SimilarRequest(TypedDict):
    """The fields of POST /similar."""

    item_ids: Sequence[str]
    k: NotRequired[int]
    by: NotRequired[Literal["taste", "next"]]
    exclude_item_ids: NotRequired[Sequence[str]]
    filter: NotRequired[FilterNode | None]
    min_catalogue_version: NotRequired[int | None]
    timeout_ms: NotRequired[int]
    return_metadata: NotRequired[bool | Sequence[str]]


class EventRequest(TypedDict):
    """The fields of an event. The client makes an `event_id` where none is given; a `datetime` needs a zone."""

    user_id: str
    item_id: str
    event_id: NotRequired[str | None]
    type: NotRequired[str]
    value: NotRequired[float | None]
    timestamp: NotRequired[str | int | datetime | None]
    recommendation_id: NotRequired[str | None]
    properties: NotRequired[Mapping[str, Property]]


class ItemRequest(TypedDict, total=False):
    """What is said of an item. A `put_item` has all of it, the others change what is given."""

    metadata: Mapping[str, Any]
    available: bool


class ItemPatchRequest(ItemRequest):
    """The fields of PATCH /items/{item_id}: one of them, or both."""


class ItemChangeRequest(ItemRequest):
    """One entry of POST /items."""

    item_id: Required[str]


def check_names(given: Collection[str], schema: type) -> None:
    """Raise TypeError for a name that is no field, as for any keyword that a function does not have."""
    if unknown := sorted(given - schema.__annotations__.keys()):
        raise TypeError(f"{schema.__name__} has no field {', '.join(map(repr, unknown))}")


def write_json(document: object) -> bytes:
    """A request as JSON. Raises TypeError or ValueError for what JSON does not have, such as NaN."""
    return json.dumps(
        document, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_write_time
    ).encode()


def _write_time(value: object) -> str:
    """A time that JSON has no form for, as RFC 3339. Raises ValueError without a zone, TypeError for anything else."""
    if not isinstance(value, datetime):
        raise TypeError(f"{type(value).__name__} is nothing that JSON has")
    if value.tzinfo is None:
        raise ValueError("a datetime needs a zone: datetime.now(timezone.utc) has one")
    return value.isoformat()

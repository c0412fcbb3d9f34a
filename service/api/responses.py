"""Response schemas as typed dictionaries: orjson serialises them, and OpenAPI describes them.

Instances of classes would take six times as long to create and to serialise
(docs/lab/2026-11-22-cost-of-an-answer.md).
"""

from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,  # pydantic reads typing's own from Python 3.12 on only
)

from pydantic import WithJsonSchema
from typing_extensions import TypedDict

Degraded = Literal["store_unavailable", "engine_unavailable", "deadline", "overloaded"]
Source = Literal["model", "neighbours", "rules", "popular"]
AnsweringVariant = Literal["champion", "candidate", "comparison"]
"""`comparison`: a version that answers only the requests that name it."""
Metadata = Annotated[Any, WithJsonSchema({"type": "object", "additionalProperties": True})]
"""An item's metadata: an object, or an orjson.Fragment of one, which is written as it is."""


class Reason(TypedDict):
    """An item of the history and its weight: the score less the score without any occurrence of it. Not additive."""

    item_id: str
    weight: float


class RankedItem(TypedDict):
    """One recommended item. Scores are comparable within one answer only. `metadata` comes with `return_metadata`.

    With `explain`: `reasons`, up to three of the history's items, the weightiest first; null as `explained` is. With
    `pins`: `pinned`, true of those alone that a pin put there. With `boosts`: `boost`, what one added to the score for
    the order, of those alone that one moved.
    """

    item_id: str
    score: float
    rank: int
    metadata: NotRequired[Metadata]
    reasons: NotRequired[list[Reason] | None]
    pinned: NotRequired[Literal[True]]
    boost: NotRequired[float]


class ModelName(TypedDict):
    """The model in use, whether or not it made this answer. `variant` says whether it is the champion or on trial.

    Or that it is loaded beside them, for requests that name its version.
    """

    name: str
    version: str
    variant: AnsweringVariant


class HistoryState(TypedDict):
    """The user's stored history at the time of the answer."""

    version: int
    length: int
    last_event_at: str | None


class CatalogueState(TypedDict):
    """The catalogue that an answer knows. `behind`: it may lack changes that were acknowledged before the request."""

    version: int
    behind: bool


class ScenarioState(TypedDict):
    """The scenario of a request, and a digest of its fields: alike wherever they are alike."""

    name: str
    rules: str


class Recommendation(TypedDict):
    """The answer of POST /recommend. `history` is null when none was read: no `user_id`, or no store.

    With `explain`: `explained`, how many of the history's items were left out in turn; null if the reasons are unknown,
    0 if the model did not rank the items. With `filter`: `allowed`, how many items of the catalogue it allows.
    `catalogue` comes once an item was changed, `scenario` with one.
    """

    recommendation_id: str
    user_id: str | None
    items: list[RankedItem]
    count: int
    requested: int
    source: Source
    degraded: Degraded | None
    model: ModelName
    history: HistoryState | None
    unknown_item_ids: list[str]
    took_ms: float
    allowed: NotRequired[int]
    explained: NotRequired[int | None]
    catalogue: NotRequired[CatalogueState]
    scenario: NotRequired[ScenarioState]


class RecommendationBatch(TypedDict):
    """The answer of POST /recommend/batch, in the order of its requests."""

    responses: list[Recommendation]


class Rejection(TypedDict):
    """One event that was not stored: its index in the request, a JSON pointer into the event, a code and a sentence."""

    index: int
    pointer: str
    code: str
    detail: str


class Receipt(TypedDict):
    """The answer of POST /events. `late` is part of `accepted`; `history` holds each user's new version."""

    accepted: int
    duplicates: int
    late: int
    rejected: list[Rejection]
    history: dict[str, int]
    took_ms: float


class ExportedEvent(TypedDict):
    """One remembered event, its time in milliseconds since 1970."""

    event_id: str
    item_id: str
    type: str
    value: float | None
    timestamp: int


class HistoryExport(TypedDict):
    """The answer of GET /users/{user_id}/history, oldest first."""

    user_id: str
    version: int
    events: list[ExportedEvent]


class ItemDescription(TypedDict):
    """The answer of GET /items/{item_id}. All but the first two come once an item of the catalogue was changed.

    `available`: whether it may be recommended; `recommendable`: whether the model knows it, and so ever does.
    """

    item_id: str
    metadata: Metadata
    available: NotRequired[bool]
    recommendable: NotRequired[bool]
    catalogue: NotRequired[CatalogueState]


class FoundItem(TypedDict):
    """One item that a search found. `popularity_rank` is its place among all items by their count, 1 the first.

    It is null for an item that the model does not know. The last two as in ItemDescription.
    """

    item_id: str
    metadata: Metadata
    popularity_rank: int | None
    available: NotRequired[bool]
    recommendable: NotRequired[bool]


class FoundItems(TypedDict):
    """The answer of GET /items, best match first. `more` says whether other items match, too."""

    items: list[FoundItem]
    count: int
    more: bool
    took_ms: float
    catalogue: NotRequired[CatalogueState]


class CatalogueReceipt(TypedDict):
    """The answer to a change of the catalogue: how many items were changed, and the version after that."""

    changed: int
    catalogue_version: int
    took_ms: float


class Refreshed(TypedDict):
    """The answer of POST /models/refresh: the workers were told to look at the bundle folder."""

    status: Literal["asked"]


class Liveness(TypedDict):
    """The answer of GET /health/live."""

    status: Literal["ok"]


class Readiness(TypedDict):
    """The answer of GET /health/ready."""

    status: Literal["ok", "degraded", "draining", "starting"]
    reasons: list[str]


class FieldErrorDescription(TypedDict):
    """One wrong field of a request."""

    pointer: str
    code: str
    detail: str


class ProblemDescription(TypedDict):
    """An error (RFC 9457). `errors` comes with status 422 only, at most 10 of them."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: NotRequired[list[FieldErrorDescription]]

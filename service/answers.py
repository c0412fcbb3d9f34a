"""What clients get, as they get it: orjson writes these dictionaries, OpenAPI describes them.

Objects of classes would take six times as long to make and to write (docs/experiments.md).
"""

from typing import (
    Any,
    Literal,
    NotRequired,  # pydantic reads typing's own from Python 3.12 on only
)

from typing_extensions import TypedDict

Degraded = Literal["store_unavailable", "engine_unavailable", "deadline", "overloaded"]
Source = Literal["model", "neighbours", "popular"]


class RankedItem(TypedDict):
    """One item of an answer. Scores compare inside one list only."""

    item_id: str
    score: float
    rank: int


class ModelName(TypedDict):
    """Which model answered, or would have."""

    name: str
    version: str


class HistoryState(TypedDict):
    """What was stored of the user when the answer was made."""

    version: int
    length: int
    last_event_at: str | None


class Recommendation(TypedDict):
    """The answer of POST /recommend. `history` is null when none was read: no `user_id`, or no store."""

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


class RecommendationBatch(TypedDict):
    """The answer of POST /recommend/batch, in the order of its requests."""

    responses: list[Recommendation]


class Rejection(TypedDict):
    """One event that was not stored: its place in the request, a pointer inside it, a code and a sentence."""

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
    """The answer of GET /items/{item_id}."""

    item_id: str
    metadata: dict[str, Any]


class ModelDescription(TypedDict):
    """The answer of GET /model. `provider` is the one that ONNX Runtime really uses."""

    name: str
    version: str
    digest: str
    trained_at: str
    last_event_at: str | None
    provider: str
    item_count: int
    max_length: int
    metrics: dict[str, float]


class Liveness(TypedDict):
    """The answer of GET /health/live."""

    status: Literal["ok"]


class Readiness(TypedDict):
    """The answer of GET /health/ready."""

    status: Literal["ok", "degraded", "draining", "starting"]
    reasons: list[str]


class FaultDescription(TypedDict):
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
    errors: NotRequired[list[FaultDescription]]

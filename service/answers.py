"""What clients get, as they get it: orjson writes these objects, OpenAPI describes them."""

from dataclasses import dataclass
from typing import Any, Literal

Degraded = Literal["store_unavailable", "engine_unavailable", "deadline", "overloaded"]
Source = Literal["model", "neighbours", "popular"]


@dataclass(frozen=True, slots=True)
class RankedItem:
    """One item of an answer. Scores compare inside one list only."""

    item_id: str
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class ModelName:
    """Which model answered, or would have."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class HistoryState:
    """What was stored of the user when the answer was made."""

    version: int
    length: int
    last_event_at: str | None


@dataclass(frozen=True, slots=True)
class Recommendation:
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


@dataclass(frozen=True, slots=True)
class RecommendationBatch:
    """The answer of POST /recommend/batch, in the order of its requests."""

    responses: list[Recommendation]


@dataclass(frozen=True, slots=True)
class Rejection:
    """One event that was not stored: its place in the request, a pointer inside it, a code and a sentence."""

    index: int
    pointer: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer of POST /events. `late` is part of `accepted`; `history` holds each user's new version."""

    accepted: int
    duplicates: int
    late: int
    rejected: list[Rejection]
    history: dict[str, int]
    took_ms: float


@dataclass(frozen=True, slots=True)
class ExportedEvent:
    """One remembered event, its time in milliseconds since 1970."""

    event_id: str
    item_id: str
    type: str
    value: float | None
    timestamp: int


@dataclass(frozen=True, slots=True)
class HistoryExport:
    """The answer of GET /users/{user_id}/history, oldest first."""

    user_id: str
    version: int
    events: list[ExportedEvent]


@dataclass(frozen=True, slots=True)
class ItemDescription:
    """The answer of GET /items/{item_id}."""

    item_id: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelDescription:
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


@dataclass(frozen=True, slots=True)
class Liveness:
    """The answer of GET /health/live."""

    status: Literal["ok"]


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer of GET /health/ready."""

    status: Literal["ok", "degraded", "draining", "starting"]
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class FaultDescription:
    """One wrong field of a request."""

    pointer: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class ProblemDescription:
    """An error (RFC 9457). `errors` comes with status 422 only, at most 10 of them."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[FaultDescription] | None = None

"""What the service answers, as frozen dataclasses: one line a field, with the names and types of the service's OpenAPI.

A class is called as its schema there, and a test compares both. A field with a default is one that an answer may lack.
Fields that a newer service adds are left out. Of a `Literal` the type alone is checked, so that a newer service may
answer another word.
"""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """An item of the history and its weight: the score less the score without any occurrence of it. Not additive."""

    item_id: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedItem:
    """One recommended item; `rank` counts from 1. Scores are comparable within one answer only.

    `metadata` comes with `return_metadata`, `reasons` with `explain`, `pinned` with what a pin put there, `boost` with
    what a boost moved; all are None otherwise.
    """

    item_id: str
    score: float
    rank: int
    metadata: dict[str, Any] | None = None
    reasons: tuple[Reason, ...] | None = None
    pinned: Literal[True] | None = None
    boost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelName:
    """The model in use, whether or not it made this answer. `comparison`: it answers only requests that name it."""

    name: str
    version: str
    variant: Literal["champion", "candidate", "comparison"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryState:
    """The user's stored history at the time of the answer."""

    version: int
    length: int
    last_event_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueState:
    """The catalogue that an answer knows. `behind`: it may lack changes that were acknowledged before the request."""

    version: int
    behind: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioState:
    """The scenario of a request, and a digest of its fields: alike wherever they are alike."""

    name: str
    rules: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueReceipt:
    """How many items were changed, and the catalogue's version after that, for `min_catalogue_version`."""

    changed: int
    catalogue_version: int
    took_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The answer to one request. `degraded` says what was missing where popular items stand in.

    `history` is None where none was read. Send `recommendation_id` with the events that follow from the answer.
    """

    recommendation_id: str
    user_id: str | None
    items: tuple[RankedItem, ...]
    count: int
    requested: int
    source: Literal["model", "neighbours", "rules", "popular"]
    degraded: Literal["store_unavailable", "engine_unavailable", "deadline", "overloaded"] | None
    model: ModelName
    history: HistoryState | None
    unknown_item_ids: tuple[str, ...]
    took_ms: float
    explained: int | None = None
    allowed: int | None = None
    catalogue: CatalogueState | None = None
    scenario: ScenarioState | None = None

    @property
    def item_ids(self) -> list[str]:
        """The ids of `items`, best first."""
        return [item.item_id for item in self.items]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarItems:
    """Items like others. `source` is `similar` by taste and `model` by next, or what stands in; `degraded` says why."""

    items: tuple[RankedItem, ...]
    count: int
    requested: int
    source: Literal["similar", "model", "neighbours", "popular"]
    degraded: Literal["store_unavailable", "engine_unavailable", "deadline", "overloaded"] | None
    model: ModelName
    took_ms: float
    allowed: int | None = None
    catalogue: CatalogueState | None = None

    @property
    def item_ids(self) -> list[str]:
        """The ids of `items`, best first."""
        return [item.item_id for item in self.items]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationBatch:
    """The answers to a batch, in the order of its requests."""

    responses: tuple[Recommendation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One event that was not stored: its index among those given, a JSON pointer into it, a code and a sentence."""

    index: int
    pointer: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of events: each was accepted, a duplicate, or rejected. `late` is part of `accepted`.

    `history` holds each user's new version; give the receipt as `after` to a recommendation that must have seen them.
    """

    accepted: int
    duplicates: int
    late: int
    rejected: tuple[Rejection, ...]
    history: dict[str, int]
    took_ms: float


NOTHING = Receipt(accepted=0, duplicates=0, late=0, rejected=(), history={}, took_ms=0.0)
"""The receipt of no events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedEvent:
    """One remembered event, its `timestamp` in milliseconds since 1970."""

    event_id: str
    item_id: str
    type: str
    value: float | None
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryExport:
    """What is stored of a user, oldest first."""

    user_id: str
    version: int
    events: tuple[ExportedEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDescription:
    """What is known of an item; `metadata` is empty where nothing is. The last three come once an item was changed."""

    item_id: str
    metadata: dict[str, Any]
    available: bool | None = None
    recommendable: bool | None = None
    catalogue: CatalogueState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundItem:
    """One item that a search found. `popularity_rank` is its place among all items by their count, 1 the first."""

    item_id: str
    metadata: dict[str, Any]
    popularity_rank: int | None
    available: bool | None = None
    recommendable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundItems:
    """What a search found, best match first. `more` says whether other items match, too."""

    items: tuple[FoundItem, ...]
    count: int
    more: bool
    took_ms: float
    catalogue: CatalogueState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether the service can answer, and what is amiss."""

    status: Literal["ok", "degraded", "draining", "starting"]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldErrorDescription:
    """One wrong field of a request: a JSON pointer, a code for programs and a sentence for people."""

    pointer: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDescription:
    """An error as the service tells it (RFC 9457). `errors` comes with status 422 only, at most 10 of them."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: tuple[FieldErrorDescription, ...] = ()

"""What POST /similar gets and gives."""

from typing import (
    Annotated,
    Literal,
    NotRequired,  # pydantic reads typing's own from Python 3.12 on only
)

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from typing_extensions import TypedDict

from model.contract.similar import MAX_ASKED
from service.api.fields import MAX_K, Id
from service.api.filter_field import FilterField
from service.api.requests import (
    MAX_K_WHOLE,
    MAX_METADATA_FIELDS,
    MAX_TIMEOUT_MS,
    MIN_TIMEOUT_MS,
    TIMEOUT_MS,
    Listed,
    MetadataFields,
)
from service.api.responses import CatalogueState, Degraded, ModelName, RankedItem
from service.api.validation import refuse

SimilarSource = Literal["similar", "model", "neighbours", "popular"]
WAYS = ("taste", "next")


def _check_way(value: str) -> str:
    if value not in WAYS:
        raise refuse("enum", "must be taste or next")
    return value


class SimilarRequest(BaseModel):
    """The body of POST /similar."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    item_ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_ASKED, fail_fast=True)] = Field(
        description="the items to be like, which are not answered; an item that is named twice counts twice"
    )
    k: int = Field(default=10, ge=1, le=MAX_K, description="number of items to return")
    by: Annotated[str, AfterValidator(_check_way), WithJsonSchema({"type": "string", "enum": [*WAYS]})] = Field(
        default="taste",
        description="`taste`: the mean cosine with them, for which the bundle must be published with --similar (else "
        "422 `not_published`); `next`: what the model ranks after them, oldest first",
    )
    exclude_item_ids: Listed = Field(
        default=(),  # type: ignore[arg-type]  # as in RecommendRequest
        description="items to exclude",
    )
    filter: FilterField = Field(default=None, description="as in POST /recommend")
    min_catalogue_version: int | None = Field(default=None, ge=0, description="as in POST /recommend")
    timeout_ms: int = Field(
        default=TIMEOUT_MS, ge=MIN_TIMEOUT_MS, le=MAX_TIMEOUT_MS, description="as in POST /recommend"
    )
    return_metadata: MetadataFields = Field(
        default=False,
        description=f"whether each item comes with what is known of it: true for all of it, with a `k` of at most "
        f"{MAX_K_WHOLE}, or the names of up to {MAX_METADATA_FIELDS} fields",
    )


class SimilarItems(TypedDict):
    """The answer of POST /similar. `source` is `similar` by taste and `model` by next, or what replaces them.

    `allowed` and `catalogue` as in Recommendation.
    """

    items: list[RankedItem]
    count: int
    requested: int
    source: SimilarSource
    degraded: Degraded | None
    model: ModelName
    took_ms: float
    allowed: NotRequired[int]
    catalogue: NotRequired[CatalogueState]

"""Request schemas. They are strict: a boolean is not an integer, a number not a string, an unknown field an error."""

from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from model.contract.deployment.document import VariantName
from service.api.business_rules import Boosts, Cap, Diversity, Pins, ScenarioName
from service.api.fields import MAX_FIELD_NAME, MAX_K, Id, read_context
from service.api.filter_field import FilterField
from service.api.ranker import Ranker
from service.api.validation import refuse

MAX_ITEMS = 1000
MAX_REQUESTS = 256
MAX_LISTED = 10_000
MAX_METADATA_FIELDS = 16
MAX_K_WHOLE = 100
"""Maximum `k` with the whole metadata of each item: it may be large."""
MAX_BATCH_WITH_METADATA = 5000
"""Maximum sum of `k` over those requests of a batch that want metadata: its answer is held in memory as one."""
MIN_TIMEOUT_MS = 10
MAX_TIMEOUT_MS = 2000
TIMEOUT_MS = 300
MAX_EXPLAINED = 50

# fail_fast: ten thousand wrong ids make one error, not ten thousand.
Items = Annotated[list[Id], Field(max_length=MAX_ITEMS, fail_fast=True)]
Listed = Annotated[list[Id], Field(max_length=MAX_LISTED, fail_fast=True)]
Candidates = Annotated[list[Id], Field(min_length=1, max_length=MAX_LISTED, fail_fast=True)]


def _check_metadata_fields(value: object, info: ValidationInfo) -> object:
    """True, False, or a tuple of distinct names. Only a request that gives the field pays for this."""
    if isinstance(value, bool):
        if value and info.data.get("k", 0) > MAX_K_WHOLE:
            raise refuse("too_many", f"true allows a k of at most {MAX_K_WHOLE}: name the fields for more items")
        return value
    if not isinstance(value, list):
        raise refuse("fields_type", "must be true, false or an array of field names")
    if not value:
        raise refuse("too_short", "must have at least 1 element")
    if len(value) > MAX_METADATA_FIELDS:
        raise refuse("too_long", f"must have at most {MAX_METADATA_FIELDS} elements")
    if not all(isinstance(name, str) and 1 <= len(name) <= MAX_FIELD_NAME for name in value):
        raise refuse("field_name", f"must hold strings of 1 to {MAX_FIELD_NAME} characters only")
    return tuple(dict.fromkeys(value))


MetadataFields = Annotated[
    bool | tuple[str, ...],
    PlainValidator(_check_metadata_fields),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_METADATA_FIELDS,
                    "items": {"type": "string", "minLength": 1, "maxLength": MAX_FIELD_NAME},
                },
            ]
        }
    ),
]


def _check_explain(value: bool, info: ValidationInfo) -> bool:
    if value and info.data.get("k", 1) > MAX_EXPLAINED:
        raise refuse("explain_k", "explains at most 50 items: ask for a k of 50 or less")
    if value and read_context(info).get("batch"):
        raise refuse("explain_batch", "is for POST /recommend alone, not for requests of a batch")
    return value


class RecommendRequest(BaseModel):
    """The body of POST /recommend. One of `user_id` and `items` is required."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    user_id: Id | None = Field(default=None, description="user whose stored history to use")
    items: Items | None = Field(
        default=None,
        description="items of a history, oldest first; with `user_id` they follow the stored history, for this answer",
    )
    k: int = Field(default=10, ge=1, le=MAX_K, description="number of items to return")
    exclude_seen: bool = Field(default=True, description="exclude every item of the remembered history")
    exclude_item_ids: Listed = Field(
        default=(),  # type: ignore[arg-type]  # a list would be copied for every request
        description="items to exclude",
    )
    candidate_item_ids: Candidates | None = Field(default=None, description="rank only these items")
    filter: FilterField = Field(default=None, description="rank only items whose metadata matches")
    min_history_version: int | None = Field(
        default=None,
        ge=0,
        description="oldest acceptable version of the history; 409 if it is not reached in time; needs `user_id`",
    )
    min_catalogue_version: int | None = Field(
        default=None,
        ge=0,
        description="oldest acceptable version of the catalogue; 409 if it is not reached in time",
    )
    timeout_ms: int = Field(
        default=TIMEOUT_MS,
        ge=MIN_TIMEOUT_MS,
        le=MAX_TIMEOUT_MS,
        description="time limit in milliseconds from the arrival of the request's head; beyond it the answer holds "
        "popular items, with `degraded` set to `deadline`",
    )
    variant: VariantName | None = Field(
        default=None,
        description="who is to answer: `champion` or `candidate`; null: as the user is assigned. Needs a key with the "
        "scope `models` or `admin`; 409 while the candidate is not in use",
    )
    ranker: Ranker = Field(
        default="auto",
        description="what is to rank, for comparisons: `auto` takes the best that is available; `model`, `neighbours`, "
        "`rules` and `popular` that one, and popular items where it knows nothing; a version that is loaded its model, "
        "for a key with the scope `models` or `admin`. 422 `unknown_ranker` if the bundle has no neighbours or rules, "
        "or the version is not loaded; not in a batch",
    )
    return_metadata: MetadataFields = Field(
        default=False,
        description=f"whether each item comes with what is known of it: true for all of it, with a `k` of at most "
        f"{MAX_K_WHOLE}, or the names of up to {MAX_METADATA_FIELDS} fields",
    )

    explain: Annotated[bool, AfterValidator(_check_explain)] = Field(
        default=False,
        description="say of each item which items of the history raised its score most (`reasons`); needs a `k` of at "
        "most 50; not in a batch",
    )
    pins: Pins = Field(
        default=(),  # type: ignore[arg-type]  # as above
        description="items that stand at a given rank, whoever ranks; the others move down. One that is unknown or may "
        "not be answered is left out; not in a batch",
    )
    diversity: Diversity = Field(
        default=0.0,
        description="how much an item loses by its cosine with those above it: 0 nothing, 1 all that counts. Needs a "
        "`k` of at most 50 and a bundle published with --similar (else 422 `not_published`); not in a batch",
    )
    max_per: Cap | None = Field(
        default=None,
        description="at most so many items of each value of a metadata field, if need be a shorter list; not in a "
        "batch",
    )
    boosts: Boosts = Field(
        default=(),  # type: ignore[arg-type]  # as above
        description="items that match a filter are ordered as if their score were higher, or lower, by `add`; of "
        "several boosts the first that matches counts. `score` stays as it is; not in a batch",
    )
    scenario: ScenarioName | None = Field(
        default=None,
        description="a scenario of the service's file (--scenarios): its fields count where the request does not have "
        "them. 422 `unknown_scenario` for any other; not in a batch",
    )

    @property
    def ruled(self) -> bool:
        """Whether business rules change the list."""
        return bool(self.pins or self.diversity or self.max_per or self.boosts)

    @model_validator(mode="after")
    def _check_history(self) -> Self:
        if self.user_id is None and self.items is None:
            raise refuse("missing_history", "give user_id, items or both")
        if self.user_id is None and self.min_history_version is not None:
            raise refuse("missing_user", "min_history_version needs user_id")
        return self


class RecommendBatchRequest(BaseModel):
    """The body of POST /recommend/batch."""

    model_config = ConfigDict(extra="forbid", strict=True)

    requests: list[RecommendRequest] = Field(min_length=1, max_length=MAX_REQUESTS)

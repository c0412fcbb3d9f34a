"""Request schemas of the routes that change the catalogue, as strict as those of requests.py."""

from typing import Annotated, Any, Self

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from service.api.fields import Id
from service.api.validation import refuse

MAX_METADATA_BYTES = 2048
MAX_CHANGES = 1000


def _check_metadata(value: object) -> object:
    """What is given is an object, never null."""
    if not isinstance(value, dict):
        raise refuse("object_type", "must be an object")
    try:
        size = len(orjson.dumps(value))
    except orjson.JSONEncodeError:  # deeper than it writes
        size = MAX_METADATA_BYTES + 1
    if size > MAX_METADATA_BYTES:
        raise refuse("too_long", "must have at most 2,048 bytes as JSON")
    return value


def _check_available(value: object) -> object:
    if not isinstance(value, bool):
        raise refuse("bool_type", "must be true or false")
    return value


ItemMetadata = Annotated[
    dict[str, Any] | None,
    BeforeValidator(_check_metadata),
    WithJsonSchema({"type": "object", "additionalProperties": True}),
]
Available = Annotated[bool | None, BeforeValidator(_check_available), WithJsonSchema({"type": "boolean"})]


class ItemRequest(BaseModel):
    """The body of PUT /items/{item_id}: all that is said of the item. What is not given is as the bundle has it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    metadata: ItemMetadata = Field(
        default=None, description="what is known of the item, all of it; at most 2,048 bytes as JSON"
    )
    available: Available = Field(default=None, description="whether it may be recommended")


class ItemPatchRequest(ItemRequest):
    """The body of PATCH /items/{item_id}: `metadata`, `available` or both. What is not given stays as it is."""

    @model_validator(mode="after")
    def _check_given(self) -> Self:
        if self.metadata is None and self.available is None:
            raise refuse("missing_change", "give metadata, available or both")
        return self


class ItemChangeRequest(ItemRequest):
    """One entry of POST /items. What is not given stays as it is; an item that there was not is available."""

    item_id: Id


class ItemsRequest(BaseModel):
    """The body of POST /items: 1 to 1,000 entries of different items, of which all are made or none."""

    model_config = ConfigDict(extra="forbid", strict=True)

    items: list[ItemChangeRequest] = Field(min_length=1, max_length=MAX_CHANGES)

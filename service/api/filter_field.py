"""The field `filter` of a request: how it is validated, and what OpenAPI says of it."""

from typing import Annotated, Union  # a type that holds itself is written with Union

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError
from pydantic.config import JsonDict
from pydantic_core import InitErrorDetails

from model.contract.attributes import MAX_NAME
from service.api.validation import refuse
from service.filters.filter import Filter
from service.filters.parser import MAX_IN, MAX_LEAVES, FilterRefused, parse_filter


def _forget_default(schema: JsonDict) -> None:
    del schema["default"]


_ABSENT = Field(default=0.0, json_schema_extra=_forget_default)
"""Of a number that may be left out, but is never null."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class FilterAll(_Part):
    """Allows what every part allows."""

    all: list["FilterNode"] = Field(min_length=1, max_length=MAX_LEAVES)


class FilterAny(_Part):
    """Allows what one of the parts allows."""

    any: list["FilterNode"] = Field(min_length=1, max_length=MAX_LEAVES)


class FilterNot(_Part):
    """Allows what its part does not allow."""

    not_: "FilterNode" = Field(alias="not")


class _Condition(_Part):
    field: str = Field(min_length=1, max_length=MAX_NAME, description="a field of the items' metadata")


class FilterIn(_Condition):
    """Allows items with one of these values: strings (true and false among them), or numbers."""

    in_: list[str | float | bool] = Field(alias="in", min_length=1, max_length=MAX_IN)


class FilterExists(_Condition):
    """Allows items that have a value, or those that have none."""

    exists: bool


class FilterRange(_Condition):
    """Allows items with a number within these bounds, one or several."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 2})

    gt: float = _ABSENT
    gte: float = _ABSENT
    lt: float = _ABSENT
    lte: float = _ABSENT


FilterNode = Union[FilterAll, FilterAny, FilterNot, FilterIn, FilterExists, FilterRange]  # noqa: UP007 - see above


def _read(document: object) -> Filter:
    try:
        return parse_filter(document)
    except FilterRefused as refused:
        error = refuse(refused.code, refused.detail)
        # So the error's place in the filter becomes part of its pointer.
        line = InitErrorDetails(type=error, loc=refused.location, input=None)
        raise ValidationError.from_exception_data("filter", [line]) from None


def _read_optional(document: object) -> Filter | None:
    return None if document is None else _read(document)


RequiredFilter = Annotated[Filter, PlainValidator(_read, json_schema_input_type=FilterNode)]
FilterField = Annotated[Filter | None, PlainValidator(_read_optional, json_schema_input_type=FilterNode | None)]

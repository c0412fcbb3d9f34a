"""Validates documents. An error holds a JSON pointer, a code from a fixed list and a fixed sentence, never input.

Refusing an invalid document costs no more than accepting a valid one of its size.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from service.errors import MAX_FIELD_ERRORS, FieldError, Invalid

S = TypeVar("S", bound=BaseModel)

_CODES: Mapping[str, tuple[str, str]] = {
    "missing": ("missing", "is required"),
    "extra_forbidden": ("extra_forbidden", "holds a field that is unknown"),
    "string_type": ("string_type", "must be a string"),
    "string_too_short": ("too_short", "must have at least {min_length} characters"),
    "string_too_long": ("too_long", "must have at most {max_length} characters"),
    "string_pattern_mismatch": ("pattern", "holds characters that are not allowed"),
    "too_short": ("too_short", "must have at least {min_length} elements"),
    "too_long": ("too_long", "must have at most {max_length} elements"),
    "list_type": ("list_type", "must be an array"),
    "model_type": ("object_type", "must be an object"),
    "bool_type": ("bool_type", "must be true or false"),
    "int_type": ("int_type", "must be an integer"),
    "float_type": ("float_type", "must be a number"),
    "finite_number": ("finite_number", "must be a finite number"),
    "greater_than_equal": ("range", "must be at least {ge}"),
    "less_than_equal": ("range", "must be at most {le}"),
}
"""pydantic's error types that our schemas can raise -> our code and sentence."""

_OWN = "nextitem."


def refuse(code: str, detail: str, **values: str) -> PydanticCustomError:
    """The error for a validator to raise. `values` fill the detail and must never come from the input."""
    return PydanticCustomError(f"{_OWN}{code}", detail, values)


class Validator(Generic[S]):
    """Validates documents against one schema. Create it once: building it takes as long as validating."""

    def __init__(self, schema: type[S]) -> None:
        self._fields = len(schema.model_fields)
        self._validate = TypeAdapter(schema).validator.validate_python

    def __call__(self, document: object, *, under: str = "", context: dict[str, Any] | None = None) -> S:
        """Validate a document found at the JSON pointer `under`. Raises Invalid with its first errors."""
        # pydantic creates an error for each unknown member, and there may be hundreds of thousands.
        if isinstance(document, dict) and len(document) > self._fields:
            raise Invalid([_unknown_field(under)])
        try:
            valid: S = self._validate(document, context=context)
        except ValidationError as error:
            found = error.errors(include_input=False, include_url=False)[:MAX_FIELD_ERRORS]
        else:
            return valid
        raise Invalid([_describe(entry, under) for entry in found])


def require_array(document: dict[str, Any], name: str, *, most: int) -> list[object]:
    """The entries, not validated yet, of a document whose only member is the array `name`. Raises Invalid."""
    under = f"/{name}"
    if name not in document:
        missing = FieldError(under, *_CODES["missing"])
        raise Invalid([missing, _unknown_field("")] if document else [missing])
    entries = document[name]
    if not isinstance(entries, list):
        raise Invalid([FieldError(under, *_CODES["list_type"])])
    if len(document) > 1:
        raise Invalid([_unknown_field("")])
    if not entries:
        raise Invalid([FieldError(under, "too_short", "must have at least 1 element")])
    if len(entries) > most:
        raise Invalid([FieldError(under, "too_long", f"must have at most {most} elements")])
    return entries


def _unknown_field(under: str) -> FieldError:
    return FieldError(under, *_CODES["extra_forbidden"])


def _describe(entry: Mapping[str, Any], under: str) -> FieldError:
    kind, location = entry["type"], entry["loc"]
    if kind == "extra_forbidden":
        location = location[:-1]  # the field's name is input: the pointer says where it stands
    pointer = under + "".join(f"/{part}" for part in location)
    if kind.startswith(_OWN):
        return FieldError(pointer, kind.removeprefix(_OWN), entry["msg"])
    code, detail = _CODES.get(kind, ("invalid", "is not valid"))
    return FieldError(pointer, code, detail.format_map(entry.get("ctx", {})))

"""Validation errors -> faults: where, a code from a fixed list, and a sentence of ours. Nothing of the input."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from service.errors import MAX_FAULTS, Fault

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
"""The error types of pydantic's that our models can meet."""

_OWN = "nextitem."


def refuse(code: str, detail: str, **values: str) -> PydanticCustomError:
    """The error that a validator of ours raises; `values` fill the detail and are never input."""
    return PydanticCustomError(f"{_OWN}{code}", detail, values)


def list_faults(error: ValidationError, *, under: str = "") -> list[Fault]:
    """The first MAX_FAULTS faults of a document that lies at the pointer `under`."""
    found = error.errors(include_input=False, include_url=False)[:MAX_FAULTS]
    return [_describe(entry, under) for entry in found]


def _describe(entry: Mapping[str, Any], under: str) -> Fault:
    kind, location = entry["type"], entry["loc"]
    if kind == "extra_forbidden":
        location = location[:-1]  # the field's name is input: the pointer says where it stands
    pointer = under + "".join(f"/{part}" for part in location)
    if kind.startswith(_OWN):
        return Fault(pointer, kind.removeprefix(_OWN), entry["msg"])
    code, detail = _CODES.get(kind, ("invalid", "is not valid"))
    return Fault(pointer, code, detail.format_map(entry.get("ctx", {})))

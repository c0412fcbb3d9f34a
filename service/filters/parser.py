"""Reads the field `filter` of a request: a tree of `all`, `any` and `not` over conditions on fields, all of it bounded.

A document that is too large, too deep or of another form is refused at its first fault, by its place.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from model.contract.attributes import MAX_NAME
from model.contract.columns import Bounds, Value
from service.filters.filter import Filter
from service.filters.nodes import All, AnyOf, Exists, In, Leaf, Node, Not, Range

MAX_BYTES = 4096
"""Of the whole filter as JSON."""
MAX_LEAVES = 16
MAX_DEPTH = 3
"""How many of `all`, `any` and `not` stand within each other."""
MAX_IN = 100
BOUNDS = ("gt", "gte", "lt", "lte")

_GROUPS: Mapping[str, Callable[[tuple[Node, ...]], Node]] = {"all": All, "any": AnyOf}
_OPERATORS = ("all", "any", "not")
_CONDITIONS = ("in", "exists", *BOUNDS)
_FORM = "must be an object with one of all, any and not, or with field and one of in, exists and bounds"


class FilterRefused(Exception):
    """A filter of a wrong form: where, with what code, and a sentence. None of it is input."""

    def __init__(self, location: tuple[str | int, ...], code: str, detail: str) -> None:
        super().__init__(detail)
        self.location = location
        self.code = code
        self.detail = detail


def parse_filter(document: object) -> Filter:
    """Read a filter. Raises FilterRefused."""
    root = _Parser().read(document, (), 0)
    # Last: by now nothing is large but strings and numbers.
    if len(orjson.dumps(document)) > MAX_BYTES:
        raise FilterRefused((), "too_long", f"must have at most {MAX_BYTES:,} bytes as JSON")
    return Filter(root)


class _Parser:
    def __init__(self) -> None:
        self._leaves = 0

    def read(self, document: object, at: tuple[str | int, ...], depth: int) -> Node:
        if not isinstance(document, dict):
            raise FilterRefused(at, "wrong_type", _FORM)
        operators = [name for name in _OPERATORS if name in document]
        if not operators:
            self._leaves += 1
            if self._leaves > MAX_LEAVES:
                raise FilterRefused((), "too_many", f"must have at most {MAX_LEAVES} conditions")
            return _read_leaf(document, at)
        if len(document) > 1:
            raise FilterRefused(at, "one_condition", _FORM)
        if depth == MAX_DEPTH:
            raise FilterRefused(at, "too_deep", f"all, any and not must stand at most {MAX_DEPTH} within each other")
        [name] = operators
        inner, at = document[name], (*at, name)
        if name == "not":
            return Not(self.read(inner, at, depth + 1))
        if not isinstance(inner, list):
            raise FilterRefused(at, "wrong_type", "must be an array")
        if not inner:
            raise FilterRefused(at, "too_short", "must have at least 1 element")
        if len(inner) > MAX_LEAVES:
            raise FilterRefused(at, "too_many", f"must have at most {MAX_LEAVES} elements")
        return _GROUPS[name](tuple(self.read(part, (*at, place), depth + 1) for place, part in enumerate(inner)))


def _read_leaf(document: dict[str, Any], at: tuple[str | int, ...]) -> Leaf:
    field = document.get("field")
    given = [name for name in _CONDITIONS if name in document]
    if len(document) > len(given) + ("field" in document):
        raise FilterRefused(at, "extra_forbidden", "holds a field that is unknown")
    if "field" not in document:
        raise FilterRefused((*at, "field"), "missing", "is required")
    if not isinstance(field, str):
        raise FilterRefused((*at, "field"), "wrong_type", "must be a string")
    if not 1 <= len(field) <= MAX_NAME:
        raise FilterRefused(
            (*at, "field"), "too_long" if field else "too_short", f"must have 1 to {MAX_NAME} characters"
        )
    if not given:
        raise FilterRefused(at, "missing", _FORM)
    if len(given) > 1 and not set(given) <= set(BOUNDS):
        raise FilterRefused(at, "one_condition", _FORM)
    pointer = "".join(f"/{part}" for part in at)
    if "in" in document:
        return In(field=field, pointer=pointer, values=_read_in(document["in"], (*at, "in")))
    if "exists" in document:
        if not isinstance(document["exists"], bool):
            raise FilterRefused((*at, "exists"), "wrong_type", "must be true or false")
        return Exists(field=field, pointer=pointer, wanted=document["exists"])
    bounds = {name: _read_bound(document[name], (*at, name)) for name in given}
    return Range(field=field, pointer=pointer, bounds=Bounds(**bounds))


def _read_in(listed: object, at: tuple[str | int, ...]) -> frozenset[Value]:
    if not isinstance(listed, list):
        raise FilterRefused(at, "wrong_type", "must be an array")
    if not listed:
        raise FilterRefused(at, "too_short", "must have at least 1 element")
    if len(listed) > MAX_IN:
        raise FilterRefused(at, "too_many", f"must have at most {MAX_IN} elements")
    values = frozenset(_read_value(value, (*at, place)) for place, value in enumerate(listed))
    if len({type(value) for value in values}) > 1:
        raise FilterRefused(at, "wrong_type", "must hold strings or numbers, not both")
    return values


def _read_value(value: object, at: tuple[str | int, ...]) -> Value:
    """A value as items have it (model/contract/columns.py)."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float() if math.isfinite(value):
            return float(value)
    raise FilterRefused(at, "wrong_type", "must be a string, a number, true or false")


def _read_bound(bound: object, at: tuple[str | int, ...]) -> float:
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
        raise FilterRefused(at, "wrong_type", "must be a number")
    return float(bound)

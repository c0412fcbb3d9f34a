"""Reads JSON into the dataclasses of answers.py and model_answers.py, checked by their annotations."""

import dataclasses
import json
import types
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Read = Callable[[object], object]

_PLAIN = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


class Mismatch(ValueError):
    """A document is not what its type says. `path` names the fields down to the wrong one."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{'.'.join(self.path) or 'it'} is not {self.wanted}"


def read(kind: type[T], content: bytes) -> T:
    """The JSON document as an instance of a dataclass. Raises Mismatch, which holds nothing of the document."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise Mismatch("JSON") from error
    shape: type = kind
    return cast("T", _object_reader(shape)(document))


@cache
def _object_reader(kind: type) -> Read:
    hints = get_type_hints(kind)
    fields = [
        (field.name, _reader(hints[field.name]), field.default is dataclasses.MISSING)
        for field in dataclasses.fields(kind)
    ]

    def read_object(value: object) -> object:
        if not isinstance(value, dict):
            raise Mismatch("an object")
        given = {}
        for name, read_field, required in fields:
            try:
                if name in value:
                    given[name] = read_field(value[name])
                elif required:
                    raise Mismatch("there")  # noqa: TRY301 - it goes the way of the others, and gets its name
            except Mismatch as mismatch:
                mismatch.path = (name, *mismatch.path)
                raise
        return kind(**given)

    return read_object


def _reader(kind: object) -> Read:
    """What reads a value of a type. Raises TypeError for a type that answers have not had so far."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _object_reader(kind)
    if origin in (Union, types.UnionType) and inner[1:] == (types.NoneType,):
        return _optional_reader(_reader(inner[0]))
    if origin is tuple and inner[1:] == (...,):
        return _array_reader(_reader(inner[0]))
    if origin is dict and inner[0] is str:
        return _mapping_reader(_reader(inner[1]))
    if kind is Any:
        return _keep
    plain = type(inner[0]) if origin is Literal else kind
    if isinstance(plain, type) and plain in _PLAIN:
        return _plain_reader(plain)
    raise TypeError(f"an answer cannot have {kind}")


def _keep(value: object) -> object:
    return value


def _plain_reader(kind: type) -> Read:
    also = int if kind is float else kind  # JSON knows no difference between 1.0 and 1

    def read_plain(value: object) -> object:
        found = type(value)  # not isinstance: a boolean is an integer to Python
        if found is kind:
            return value
        if found is also:
            return kind(value)
        raise Mismatch(_PLAIN[kind])

    return read_plain


def _optional_reader(read_value: Read) -> Read:
    return lambda value: None if value is None else read_value(value)


def _array_reader(read_element: Read) -> Read:
    def read_array(value: object) -> object:
        if not isinstance(value, list):
            raise Mismatch("an array")
        return tuple(map(read_element, value))

    return read_array


def _mapping_reader(read_member: Read) -> Read:
    def read_mapping(value: object) -> object:
        if not isinstance(value, dict):
            raise Mismatch("an object")
        return value if read_member is _keep else {name: read_member(member) for name, member in value.items()}

    return read_mapping

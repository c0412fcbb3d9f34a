"""What fields of the deployment's documents may hold: predicates for their rules, strict JSON, and plain text."""

import json
import math
import re
from typing import Any

from model.contract.manifest import is_count, is_number, is_plain_name


def parse_strictly(content: bytes) -> Any:  # noqa: ANN401 - whatever the document is
    """A JSON document whose numbers are finite. Raises ValueError and RecursionError."""
    return json.loads(content, parse_constant=_refuse_constant, parse_float=_read_finite)


def clean(text: str, *, limit: int) -> str:
    """One line of at most `limit` characters. What a terminal would obey or UTF-8 cannot write becomes a space."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:limit])


def is_share(value: object) -> bool:
    """Tell whether a value of a JSON document is a share, 0 to 1."""
    return is_number(value) and 0 <= value <= 1  # type: ignore[operator]  # is_number has seen that it is one


def is_positive(value: object) -> bool:
    """Tell whether a value of a JSON document is a number above 0."""
    return is_number(value) and value > 0  # type: ignore[operator]  # as above


def is_nonnegative(value: object) -> bool:
    """Tell whether a value of a JSON document is a number of at least 0."""
    return is_number(value) and value >= 0  # type: ignore[operator]  # as above


def is_version(value: object) -> bool:
    """Tell whether a value of a JSON document is the name of a version."""
    return isinstance(value, str) and is_plain_name(value)


def is_optional_version(value: object) -> bool:
    """Tell whether a value of a JSON document is the name of a version or null."""
    return value is None or is_version(value)


def is_digest_table(value: object) -> bool:
    """Tell whether a value of a JSON document is an object of sha256, in hexadecimal, by version."""
    return isinstance(value, dict) and all(
        is_version(version) and isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest)
        for version, digest in value.items()
    )


def is_index(value: object) -> bool:
    """Tell whether a value of a JSON document is a whole number of at least 0."""
    return is_count(value, least=0)


def is_flag(value: object) -> bool:
    """Tell whether a value of a JSON document is true or false."""
    return isinstance(value, bool)


def is_text(value: object) -> bool:
    """Tell whether a value of a JSON document is a string."""
    return isinstance(value, str)


def is_short_text(value: object) -> bool:
    """Tell whether a value of a JSON document is a string of up to 64 ASCII characters."""
    return isinstance(value, str) and value.isascii() and len(value) <= 64


def _refuse_constant(_text: str) -> float:
    raise ValueError("NaN and Infinity are not JSON")


def _read_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("larger than a number can be")
    return value

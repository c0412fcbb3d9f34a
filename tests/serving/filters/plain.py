"""The rules of filters in plain loops, as the documentation has them."""

import math

COMPARE = {"gt": float.__gt__, "gte": float.__ge__, "lt": float.__lt__, "lte": float.__le__}


def matches(document, metadata):
    """Whether a filter, as it is sent, matches an item's metadata."""
    if "all" in document:
        return all(matches(part, metadata) for part in document["all"])
    if "any" in document:
        return any(matches(part, metadata) for part in document["any"])
    if "not" in document:
        return not matches(document["not"], metadata)
    cell = metadata.get(document["field"])
    settled = map(settle, cell if isinstance(cell, list) else [cell])
    values = [value for value in settled if value is not None]
    if "exists" in document:
        return bool(values) == document["exists"]
    if "in" in document:
        return any(value == settle(wanted) for value in values for wanted in document["in"])
    bounds = {name: float(document[name]) for name in COMPARE if name in document}
    return any(
        all(COMPARE[name](value, bound) for name, bound in bounds.items())
        for value in values
        if isinstance(value, float)
    )


def settle(value):
    """A value as it is compared; None for what is none."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

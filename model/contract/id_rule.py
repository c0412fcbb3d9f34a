"""The id rule of users and items, for whoever reads or writes ids, whatever packages are there."""

import re

MAX_ID_LENGTH = 256
ID_PATTERN = rf"[!-~]{{1,{MAX_ID_LENGTH}}}"
"""The id rule: printable ASCII without spaces, any punctuation included."""

_ID = re.compile(ID_PATTERN)


def is_valid_id(value: str) -> bool:
    """Tell whether a string keeps the id rule."""
    return _ID.fullmatch(value) is not None

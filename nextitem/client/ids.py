"""Ids that the service does not take as they are: with spaces, or with characters beyond ASCII.

The encoding is that of `--ids percent` (docs/reference/data.md#ids): every character that the service refuses, and "%",
as the percent-encoded bytes of its UTF-8.
"""

import string
from urllib.parse import quote, unquote

_KEPT = string.punctuation.replace("%", "")


def encode_id(original: str) -> str:
    """The id to send. It may still be too long: the service takes 256 characters. Raises ValueError for no Unicode."""
    return quote(original, safe=_KEPT, errors="strict")


def decode_id(encoded: str) -> str:
    """The id that was encoded. Raises ValueError where its bytes are no UTF-8."""
    return unquote(encoded, errors="strict")

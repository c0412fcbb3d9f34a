"""Ids of a log: which are missing, and how those that break the id rule are written so that they keep it.

The encoding is percent-encoding over UTF-8 of every character that the id rule forbids, and of "%" itself: "café au
lait" is "caf%C3%A9%20au%20lait". Ids that keep the rule and hold no "%" stay as they are, and every encoded id has one
original. Nothing is normalised: two spellings that look alike stay two ids.
"""

import re
import string
from urllib.parse import quote, unquote

ID_WRITINGS = ("plain", "percent")
"""What `--ids` takes: ids as they are, or encoded."""

MISSING_RULES = ("skip", "refuse", "keep")
"""What `--missing-ids` takes: leave such events out, refuse the file, or take texts such as NaN for ids."""

NO_IDS = ("nan", "NaN", "NAN", "null", "NULL", "none", "None", "NA", "N/A", "<NA>", "\\N")
"""Texts that tools write where there is no id. An empty cell, or one of blanks, is no id either."""

ID_RULE = "1 to 256 printable ASCII characters without spaces"
"""The id rule of model/contract/vocabulary.py in words. That file wants numpy, and `--help` must do without."""
WAY_OUT = "--ids percent encodes other characters"

_KEPT = string.punctuation.replace("%", "")
_ENCODED = re.compile(r"[^!-$&-~]")


def encode_id(original: str) -> str:
    """An id as `--ids percent` writes it. It may be too long. Raises ValueError for what is no Unicode text."""
    return quote(original, safe=_KEPT, errors="strict") if _ENCODED.search(original) else original


def decode_id(encoded: str) -> str:
    """The id that was encoded. Raises ValueError where the bytes are no UTF-8."""
    return unquote(encoded, errors="strict")

"""Folds text for searching: upper and lower case, accents and punctuation make no difference."""

import unicodedata

_ASCII = bytes(byte if byte >= 0x80 or chr(byte).isalnum() else ord(" ") for byte in bytes(range(256)).lower())
"""ASCII letters in lower case, everything else of ASCII but digits a space, other bytes as they are."""
_APOSTROPHES = "'\u02bc\u2019"
_LETTERS = {"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ħ": "h", "\u0131": "i", "ł": "l", "ŧ": "t"}
"""Latin letters that Unicode does not decompose."""


class _Table(dict[int, str]):
    """What becomes of a character, for str.translate: worked out once for each of as many as texts use."""

    MAX = 20_000

    def __missing__(self, code: int) -> str:
        folded = _fold_character(chr(code))
        if len(self) < self.MAX:
            self[code] = folded
        return folded


_table = _Table()


def fold(text: str) -> bytes:
    """Words of letters and digits, one space between two of them, in UTF-8; empty if there are none.

    An apostrophe joins what it stands between: `Schindler's` is `schindlers`.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text).casefold().translate(_table)
    return b" ".join(text.encode().translate(_ASCII, b"'").split())


def _fold_character(character: str) -> str:
    """Nothing for accents, a space for what is no part of a word. Vowel signs of Indic scripts and the like stay."""
    if character in _APOSTROPHES or unicodedata.combining(character):
        return ""
    if character.isalnum() or unicodedata.category(character)[0] == "M":
        return _LETTERS.get(character, character)
    return " "

"""Finds titles that contain a text. They lie in memory one after another, the most popular first, and are scanned.

So what is found first is the most popular, and a search for what many titles have ends early. Why there is no database:
docs/decisions/0018-titles-are-scanned.md.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Self

import orjson

from service.search.folding import fold
from service.search.pace import Pace

PART = 256
"""Titles in one part: bytes.find holds Python's lock, for some microseconds in so many."""


class TitleIndex:
    """V folded titles."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        """Take parts of PART titles, the last one of fewer, with a line end before each title."""
        self._parts = parts

    @classmethod
    def build(cls, titles: Iterable[str], pace: Pace) -> Self:
        """Take V titles, the most popular first; an item without one has an empty one. Raises OutOfTime."""
        folded = _fold_all(titles, pace)
        return cls(list(iter(lambda: b"".join(islice(folded, PART)), b"")))

    @property
    def size_bytes(self) -> int:
        """The memory that the titles take."""
        return sum(map(len, self._parts))

    def find(self, text: bytes, most: int, pace: Pace) -> list[int]:
        """The places, from 0 on, of at most so many titles that contain a folded text that is not empty.

        First those that begin with it, then those with a word that does, then the others; each the most popular first.
        Raises OutOfTime.
        """
        return list(self.match(text, most, pace, ()))

    def match(self, text: bytes, most: int, pace: Pace, skip: Container[int]) -> dict[int, int]:
        """The same without the places to `skip`, and of each the number of the needle that it has (list_needles)."""
        parts: list[tuple[int, bytes]] = []
        for number, part in enumerate(self._parts):
            pace.rest()
            if text in part:
                parts.append((number, part))
        found: dict[int, int] = {}
        for how, needle in enumerate(list_needles(text)):
            for place in _scan(parts, needle, pace):
                if place in skip:
                    continue
                found.setdefault(place, how)
                if len(found) == most:
                    return found
        return found


def list_needles(text: bytes) -> tuple[bytes, bytes, bytes]:
    """What a title, with a line end before it, contains if it begins with a text, has a word that does, contains it."""
    return b"\n" + text, b" " + text, text


def read_titles(metadata: Sequence[bytes], order: Iterable[int], field: str) -> Iterator[str]:
    """The title of each item index of `order`."""
    return (read_title(metadata[index - 1], field) for index in order)


def read_title(metadata: bytes, field: str) -> str:
    """A string of an item's metadata, or the strings of an array; else empty."""
    value: Any = orjson.loads(metadata).get(field)
    if isinstance(value, list):
        value = " ".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _fold_all(titles: Iterable[str], pace: Pace) -> Iterator[bytes]:
    for title in titles:
        yield b"\n" + fold(title)
        pace.rest()


def _scan(parts: Iterable[tuple[int, bytes]], needle: bytes, pace: Pace) -> Iterator[int]:
    """The places of the titles of these parts that contain it, each once."""
    for number, part in parts:
        pace.rest()
        at = part.find(needle)
        while at >= 0:
            yield number * PART + part.count(b"\n", 0, at + 1) - 1
            end = part.find(b"\n", at + 1)
            at = part.find(needle, end) if end >= 0 else -1

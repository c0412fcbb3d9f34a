"""Pins: items that stand at a given rank, whatever the others are."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def place_pins(others: Iterable[T], pins: Sequence[tuple[int, T]]) -> list[T]:
    """The others in their order with each pin (rank from 1, entry) at its rank; ranks differ, and entries from others.

    Where there are too few others for a rank, its pin comes after the last of them. Takes time in proportion to the
    list, some microseconds.
    """
    rest = iter(others)
    placed: list[T] = []
    for rank, entry in sorted(pins, key=lambda pin: pin[0]):
        placed += islice(rest, rank - 1 - len(placed))
        placed.append(entry)
    return [*placed, *rest]

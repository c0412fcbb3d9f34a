"""Entries of the rows of a sparse matrix: their places within a row, and the highest ones of each."""

import numpy as np
from numpy.typing import NDArray


def count_within(rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many entries of the same row come before each, of rows in order."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


def find_highest(
    rows: NDArray[np.integer], columns: NDArray[np.integer], values: NDArray[np.float64], most: int
) -> NDArray[np.int64]:
    """Which entries are among the `most` highest of their row: by row, then falling value, equal ones by column."""
    order = np.lexsort((columns, -values, rows))
    return order[count_within(rows[order]) < most]


def add_up(
    rows: NDArray[np.integer], columns: NDArray[np.integer], values: NDArray[np.float64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The sum of the values at each place of a matrix of so many columns: rows, columns and sums, by row and column."""
    places, entries = np.unique(rows.astype(np.int64) * width + columns, return_inverse=True)
    sums = np.bincount(entries, weights=values, minlength=len(places)).astype(np.float64, copy=False)
    return places // width, places % width, sums


def match(ordered: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where those of the wanted keys that are among the ordered ones stand there, and which of the wanted these are."""
    places = np.searchsorted(ordered, wanted)
    there = np.flatnonzero(places < len(ordered))
    there = there[ordered[places[there]] == wanted[there]]
    return places[there], there

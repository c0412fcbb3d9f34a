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

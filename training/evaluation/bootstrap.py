"""95 % intervals of means, users resampled: the percentile bootstrap (Efron 1979)."""

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 1000
_CELLS_AT_ONCE = 2**24


def estimate_intervals(values: NDArray[np.float64], seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Low and high end of the mean of each column of (B, M), users (rows) resampled with replacement: both (M).

    Users with the same values are drawn as one group: how often a group is drawn is multinomial, which is the same
    law and much less to draw.
    """
    if not len(values):
        raise ValueError("there are no users to draw from")
    groups, sizes = np.unique(values, axis=0, return_counts=True)
    rng = np.random.default_rng(seed)
    step = max(1, _CELLS_AT_ONCE // len(groups))
    means = [
        rng.multinomial(len(values), sizes / len(values), size=min(step, _RESAMPLES - begin)) @ groups / len(values)
        for begin in range(0, _RESAMPLES, step)
    ]
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975), axis=0)
    return low, high


def estimate_clustered_intervals(
    values: NDArray[np.float64], owners: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Low and high end of the mean of each column of (B, M), when users are drawn with all their rows: both (M).

    `owners` (B) is the user of each row. Rows of one user resemble each other: drawn one by one they would make the
    interval too narrow (cluster bootstrap, Field & Welsh 2007).
    """
    if not len(values):
        raise ValueError("there are no rows to draw from")
    users, rows = np.unique(owners, return_inverse=True)
    sizes = np.bincount(rows).astype(np.float64)
    sums = np.stack([np.bincount(rows, weights=column) for column in values.T], axis=1)
    rng = np.random.default_rng(seed)
    step = max(1, _CELLS_AT_ONCE // len(users))
    means = []
    for begin in range(0, _RESAMPLES, step):
        drawn = rng.multinomial(len(users), np.full(len(users), 1 / len(users)), size=min(step, _RESAMPLES - begin))
        means.append(drawn @ sums / (drawn @ sizes)[:, None])
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975), axis=0)
    return low, high

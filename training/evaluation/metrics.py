"""HR@k, NDCG@k and MRR from ranks, ties at their expected value under random tie-breaking; and what lists are made of.

A rank is given by two counts: how many candidates score higher than the target and how many others score the same. The
target then stands at each of the places greater .. greater + ties with equal chance. Breaking ties for or against the
target instead would let a constant scorer reach 1 or 0.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

CUTS = (1, 5, 10)
LIST_LENGTH = 10
UNLISTED = int(np.iinfo(np.int32).max)
"""How many candidates score higher than a target that is in no list: every metric of it is 0."""
PRIMARY_METRIC = "NDCG@10"
"""What decides: which weights are best, when to stop, and which of several runs won."""


def measure_hits(greater: NDArray[np.int64], ties: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """HR@k of each question: the chance that the target stands among the first k."""
    return np.clip(k - greater, 0, ties + 1) / (ties + 1)


def measure_gain(greater: NDArray[np.int64], ties: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """NDCG@k of each question: the expected 1 / log2(place + 1), place counted from 1, 0 beyond k."""
    gains = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
    first, behind = np.minimum(greater, k), np.minimum(greater + ties + 1, k)
    result: NDArray[np.float64] = (gains[behind] - gains[first]) / (ties + 1)
    return result


def measure_reciprocal(greater: NDArray[np.int64], ties: NDArray[np.int64]) -> NDArray[np.float64]:
    """MRR of each question: the expected 1 / place, without a cut."""
    listed = greater < UNLISTED
    first, behind = np.where(listed, greater, 0), np.where(listed, greater + ties + 1, 0)
    sums = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, int(behind.max(initial=0)) + 1))])
    result: NDArray[np.float64] = (sums[behind] - sums[first]) / (ties + 1)
    return result


def measure_ranks(greater: NDArray[np.int64], ties: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Every metric of every question, by name."""
    return {
        **{f"HR@{k}": measure_hits(greater, ties, k) for k in CUTS},
        **{f"NDCG@{k}": measure_gain(greater, ties, k) for k in CUTS},
        "MRR": measure_reciprocal(greater, ties),
    }


def average(values: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """The mean of each metric over the questions."""
    return {name: float(value.mean()) for name, value in values.items()}


def measure_coverage(lists: NDArray[np.int32], item_count: int) -> float:
    """The share of all items that stand on somebody's list; lists (B, K) hold indexes, 0 where there is no item."""
    return len(np.unique(lists[lists > 0])) / item_count


def measure_popularity(lists: NDArray[np.int32], popularity: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean popularity of each list's items (B), `popularity` (V) being 1 for the most popular and 0 for the least.

    Items chosen blindly come to 0.5, and so does an empty list.
    """
    listed = lists > 0
    sums = np.where(listed, popularity[np.maximum(lists, 1) - 1], 0).sum(axis=1)
    filled = listed.sum(axis=1)
    result: NDArray[np.float64] = np.where(filled > 0, sums / np.maximum(filled, 1), 0.5)
    return result

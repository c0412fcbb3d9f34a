"""Boosts: items of some sets stand higher or lower in the order, by what is added to their scores.

Exact whatever ranks: the sets are disjoint, and within one what is added leaves the order as it is. So the best of each
set, asked for by itself, hold the best of all.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.contract.allowed import Allowed
from model.contract.query import Question


class BoostedSet(NamedTuple):
    """Items, and what is added to their scores for the order."""

    allowed: Allowed
    add: float


class Pool(NamedTuple):
    """Ranked items, best first: their indexes (n), their scores, and their values, which are what orders them."""

    indexes: NDArray[np.int32]
    scores: list[float]
    values: list[float]


def ask_each(question: Question, sets: Sequence[BoostedSet]) -> list[Question]:
    """The question for each set alone; without any sets, the question."""
    return [question._replace(allowed=one.allowed) for one in sets] or [question]


def merge_sets(
    answers: Sequence[tuple[NDArray[np.int32], list[float]]], sets: Sequence[BoostedSet], *, most: int
) -> Pool:
    """The `most` best of all, from so many of each set: their indexes and scores, best first.

    Of equal values the higher score comes first, then the lower index. Without any sets the one answer is the pool.
    """
    if not sets:
        [(found, scores)] = answers
        return Pool(found, scores, scores)
    indexes = np.concatenate([found for found, _ in answers])
    of_all = np.array([score for _, scores in answers for score in scores], dtype=np.float64)
    values = of_all + np.repeat([one.add for one in sets], [len(found) for found, _ in answers])
    best = np.lexsort((indexes, -of_all, -values))[:most]
    return Pool(indexes[best], of_all[best].tolist(), values[best].tolist())

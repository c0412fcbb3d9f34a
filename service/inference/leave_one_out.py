"""What an answer owes to each item of its history: the score with the item less the score without it.

All occurrences of the item are left out, and the history that remains is encoded anew. The weights of an answer do not
add up to anything: two items that say the same lend each other theirs.

Shapes: M items left out, K items of the answer.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.contract.query import Question

TRIED = 20
"""So many distinct items of a history are left out in turn, the newest."""
REASONS = 3
ROUNDING = 1e-4
"""Smaller weights are what float32 rounds, as in the golden examples."""

_NONE = np.empty(0, dtype=np.int32)


class Reason(NamedTuple):
    """The index of an item of the history, and by how much it raised the score."""

    item: int
    weight: float


def leave_each_out(
    question: Question,
    ranked: NDArray[np.int32],
    full: Sequence[float],
    score: Callable[[Sequence[Question]], NDArray[np.float32]],
) -> tuple[int, list[list[Reason]]]:
    """How many items were left out in turn, and the reasons of each of K ranked items, the weightiest first.

    `full` (K) are their scores after the whole history. `score` gives the scores (M, K) of questions' candidates.
    """
    omitted, asked = _omit_each(question, ranked)
    if not asked or not len(ranked):
        return 0, [[] for _ in ranked]
    weights = np.array(full) - score(asked)
    order = np.argsort(-weights, axis=0, kind="stable")[:REASONS]  # of equal ones the newest first
    best = np.take_along_axis(weights, order, axis=0)
    return len(omitted), [
        [Reason(omitted[row], weight) for row, weight in zip(rows, column, strict=True) if weight > ROUNDING]
        for rows, column in zip(order.T.tolist(), best.T.tolist(), strict=True)
    ]


def _omit_each(question: Question, ranked: NDArray[np.int32]) -> tuple[list[int], list[Question]]:
    """The newest items of the history, each once, and the questions about `ranked` without each of them."""
    newest = list(dict.fromkeys(question.history[::-1].tolist()))[:TRIED]
    return newest, [_omit(question, index, ranked) for index in newest]


def _omit(question: Question, index: int, ranked: NDArray[np.int32]) -> Question:
    kept = question.history != index
    events = question.events
    return Question(
        history=question.history[kept],
        exclude=_NONE,
        candidates=ranked,
        k=1,
        events=None if events is None else {name: column[kept] for name, column in events.items()},
        asked_ms=question.asked_ms,
    )

"""Ranks only the items that a question names, by their scores alone: no other item of the catalogue is scored."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from model.contract.query import Question

SCANNED_PER_LOOKUP = 64
"""Looking up a named item costs as much as scanning so many."""
SCANNED_PER_RUN = 16_000
"""What one more run costs, in items scanned for one row (service/inference/length_groups.py); and as much, about, what
is done outside the graph for one without the scan."""
LOOKUPS_PER_RUN = 1 << 16
"""Most rows of the item table that a run looks up, but for one question alone: 16 MB at D = 64."""

_NONE = np.empty(0, dtype=np.int32)


def count_few(item_count: int) -> int:
    """So many candidates are looked up more quickly than a catalogue of this size is scanned."""
    return max(0, item_count - SCANNED_PER_RUN) // SCANNED_PER_LOOKUP


def pick_rerankings(questions: Sequence[Question], *, item_count: int) -> list[int]:
    """Which of a batch's questions are answered by a run of their own more quickly than together with the rest."""
    few = count_few(item_count)
    picked = [
        number
        for number, question in enumerate(questions)
        if question.candidates is not None and len(question.candidates) <= few
    ]
    if len(picked) < len(questions) and len(picked) * item_count <= SCANNED_PER_RUN:
        return []
    return picked


def rerank(
    questions: Sequence[Question], score: Callable[[Sequence[Question]], NDArray[np.float32]]
) -> list[tuple[list[int], list[float]]]:
    """The indexes and scores of each question's k best candidates, as a scan would rank them: ties by index.

    `score` gives the scores (B, C) of questions' candidates, aligned to the right.
    """
    pools = [_list_allowed(question) for question in questions]
    ranked: list[tuple[list[int], list[float]]] = [([], []) for _ in questions]
    for numbers in _portion(pools):
        asked = [_ask_about(questions[number], pools[number]) for number in numbers]
        for number, scores in zip(numbers, score(asked), strict=True):
            pool = pools[number]
            found = scores[len(scores) - len(pool) :]
            best = np.argsort(-found, kind="stable")[: questions[number].k]
            ranked[number] = pool[best].tolist(), found[best].tolist()
    return ranked


def _list_allowed(question: Question) -> NDArray[np.int32]:
    """What may be answered, each item once, by index."""
    assert question.candidates is not None  # noqa: S101 - others are not picked
    pool = np.unique(question.candidates)
    return pool[~np.isin(pool, question.exclude)] if len(question.exclude) else pool


def _ask_about(question: Question, pool: NDArray[np.int32]) -> Question:
    return question._replace(exclude=_NONE, candidates=pool, k=1)


def _portion(pools: Sequence[NDArray[np.int32]]) -> Iterator[list[int]]:
    """The questions of each run, those with the most candidates first; what has none is not asked."""
    numbers = sorted((number for number, pool in enumerate(pools) if len(pool)), key=lambda number: -len(pools[number]))
    while numbers:
        rows = max(1, LOOKUPS_PER_RUN // len(pools[numbers[0]]))
        yield numbers[:rows]
        numbers = numbers[rows:]

"""What filtered answers cost beside unfiltered ones: masks in the graph, and what stands for them where they are small.

`python -m benchmarks.graph.filtered --cases 50,1000000,64` exports a random network of that size and asks it for the
best 10 of what random filters leave. First every answer must be what PyTorch's scores give, filtered, then sorted:
`--filters` of them, alone and in batches, several after each history. Then, in a round, each filter has its turn, the
quickest of a few runs, and so has the same question unfiltered; ratios are taken within a round. One thread is measured
in CPU time.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.graph.asked_network import (
    AT_ONCE,
    TOLERANCE,
    AskedNetwork,
    Comparison,
    Ranking,
    count_batches,
    draw_question,
    run,
    sort_best,
)
from benchmarks.harness.cases import Case
from model.contract.allowed import Allowed
from model.contract.golden import compare
from model.contract.query import Question
from service.inference.item_masks import plan_of

_OF_EACH = 5
"""Batches of filters after the same histories: to score a million items anew costs PyTorch as much as to rank them."""
_SHARES = (0.0, 1e-4, 0.01, 0.05, 0.2, 0.5, 0.9, 0.99, 0.9999, 1.0)
"""Of the items that the filters of the proof allow."""
_TIMED = {
    "no filter": None,
    "1,000 items allowed": 1_000,
    "a twentieth allowed": 0.05,
    "a tenth allowed": 0.1,
    "half allowed": 0.5,
    "95 % allowed": 0.95,
    "all but 1,000 items": -1_000,
    "all but 100 items": -100,
}
"""Filters by name: how many items they allow, or which share, or less than none: how many they do not."""


def find_fault(asked: AskedNetwork, filters: int, *, seed: int = 0) -> str | None:
    """Say how an answer under a random filter differs from PyTorch's scores, filtered and sorted, or None."""
    draw = np.random.default_rng(seed)
    for batch in count_batches(filters, "Filters"):
        if batch % _OF_EACH == 0:
            plain = [draw_question(draw, asked.case) for _ in range(AT_ONCE)]
            scores = asked.score_all(plain)
        questions = [
            question._replace(k=int(draw.integers(1, 100)), allowed=_draw_mask(draw, row))
            for question, row in zip(plain, scores, strict=True)
        ]
        wanted = [_sort(row, question) for row, question in zip(scores, questions, strict=True)]
        for got in (asked.rank(questions), [asked.rank([question])[0] for question in questions]):
            for question, answer, expected in zip(questions, got, wanted, strict=True):
                fault = compare(answer, expected, k=question.k, tolerance=TOLERANCE)
                if fault is not None:
                    return f"{question.allowed} ({plan_of(question.allowed)}): {fault}"
    return None


def _draw_mask(draw: np.random.Generator, scores: NDArray[np.float32]) -> Allowed:
    """A random share of the items, or as many of those that score lowest, as filters that miss the user's taste do."""
    share = draw.choice(_SHARES)
    if draw.random() < 0.25:
        place = round(share * (len(scores) - 1))
        free = scores <= np.partition(scores, place)[place]
    else:
        free = draw.random(len(scores), dtype=np.float32) < share
    return Allowed(np.pad(free, 1))


def _sort(scores: NDArray[np.float32], question: Question) -> Ranking:
    left = np.ones(len(scores), dtype=bool) if question.allowed is None else question.allowed.mask[1:-1].copy()
    left[question.exclude - 1] = False
    return sort_best(scores, np.flatnonzero(left), question.k)


def draw_filters(case: Case, *, seed: int = 0) -> dict[str, Allowed | None]:
    """The filters that are timed, as far as the catalogue is large enough for them."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(case.items) + 1
    found: dict[str, Allowed | None] = {}
    for name, size in _TIMED.items():
        if size is None:
            found[name] = None
            continue
        count = round(size * case.items) if isinstance(size, float) else size % case.items
        if 0 < count < case.items and abs(size) < case.items:
            found[name] = Allowed.only(order[:count], item_count=case.items)
    return found


def list_ways(asked: AskedNetwork, rows: int) -> Mapping[str, Callable[[Any], Any]]:
    """The same questions under each filter, by its name and what becomes of it."""
    draw = np.random.default_rng(1)
    questions = [draw_question(draw, asked.case) for _ in range(rows)]

    def ask(mask: Allowed | None) -> Callable[[Any], Any]:
        masked = [question._replace(allowed=mask) for question in questions]
        return lambda _feed: asked.rank(masked)

    masks = draw_filters(asked.case)
    return {name if mask is None else f"{name} ({plan_of(mask)})": ask(mask) for name, mask in masks.items()}


def main() -> int:
    """Run the cases. 0: done, 1: an answer is not what filter-then-sort gives."""
    return run(
        Comparison(
            name="filtered",
            description=__doc__,
            option="filters",
            first="no filter",
            proof="random filters answered as filter-then-sort does",
            find_fault=find_fault,
            list_ways=list_ways,
        )
    )


if __name__ == "__main__":
    sys.exit(main())

"""What boosted answers cost beside others, and whether they are what sums sorted give, by a real graph's scans.

`python -m benchmarks.graph.boosted --cases 50,1000000,64` exports a random network of that size and asks it for the
best items under random boosts, and often a filter. First every answer must be PyTorch's scores, added to and sorted:
`--boosted` requests, in batches. Then the same question is timed without boosts and with one, two and four; ratios
are taken within a round. One thread is measured in CPU time.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
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
from service.business_rules.boosts import BoostedSet, Pool, ask_each, merge_sets
from service.ranking.divisions import divide

_SHARES = (0.0, 1e-4, 0.02, 0.1, 0.3, 1.0)
"""Of the items that the boosts of the proof match."""
_TIMED = (0.1, 0.02, 0.3, 0.05)
"""Of those that are timed."""


def draw_sets(
    draw: np.random.Generator, case: Case, allowed: Allowed | None, shares: Sequence[float]
) -> list[BoostedSet]:
    """The sets of boosts that match these shares of the items, each of which adds something, and the rest."""
    matching = [Allowed(draw.random(case.items + 2) < share) for share in shares]
    sets = divide(allowed, matching, item_count=case.items)
    adds = [*draw.uniform(-4, 4, size=len(matching)).tolist(), 0.0]
    return [BoostedSet(*one) for one in zip(sets, adds, strict=True)]


def rank_boosted(asked: AskedNetwork, requests: Sequence[tuple[Question, Sequence[BoostedSet]]]) -> list[Pool]:
    """The pool of each question, all sets of all of them in one run."""
    answers = iter(asked.rank([one for question, sets in requests for one in ask_each(question, sets)]))
    pools: list[Pool] = []
    for question, sets in requests:
        found = [next(answers) for _ in ask_each(question, sets)]
        pairs = [(np.array(indexes, dtype=np.int32), scores) for indexes, scores in found]
        pools.append(merge_sets(pairs, sets, most=question.k))
    return pools


def find_fault(asked: AskedNetwork, boosted: int, *, seed: int = 0) -> str | None:
    """Say how an answer under random boosts differs from PyTorch's scores, added to and sorted, or None."""
    draw, case = np.random.default_rng(seed), asked.case
    for _ in count_batches(boosted, "Boosted requests"):
        requests: list[tuple[Question, list[BoostedSet]]] = []
        for _ in range(AT_ONCE):
            allowed = Allowed(draw.random(case.items + 2) < draw.choice(_SHARES)) if draw.random() < 0.3 else None
            question = draw_question(draw, case)._replace(k=int(draw.integers(1, 100)), allowed=allowed)
            shares = draw.choice(_SHARES, size=draw.integers(1, 5)).tolist()
            requests.append((question, draw_sets(draw, case, allowed, shares)))
        scores = asked.score_all([question for question, _ in requests])
        for (question, sets), pool, row in zip(requests, rank_boosted(asked, requests), scores, strict=True):
            got = pool.indexes.tolist(), pool.values
            fault = compare(got, _sort(row, question, sets), k=question.k, tolerance=TOLERANCE)
            if fault is not None:
                return f"{[(one.allowed, one.add) for one in sets]}: {fault}"
    return None


def _sort(scores: NDArray[np.float32], question: Question, sets: Sequence[BoostedSet]) -> Ranking:
    sums = np.full(len(scores), -np.inf)
    for allowed, add in sets:
        of_set = allowed.mask[1:-1]
        sums[of_set] = scores[of_set].astype(np.float64) + add
    sums[question.exclude - 1] = -np.inf
    return sort_best(sums, np.flatnonzero(np.isfinite(sums)), question.k)


def list_ways(asked: AskedNetwork, rows: int) -> Mapping[str, Callable[[Any], Any]]:
    """The same questions without boosts, and with ever more of them."""
    draw = np.random.default_rng(1)
    questions = [draw_question(draw, asked.case) for _ in range(rows)]

    def ask(count: int) -> Callable[[Any], Any]:
        sets = draw_sets(draw, asked.case, None, _TIMED[:count]) if count else []
        return lambda _feed: rank_boosted(asked, [(question, sets) for question in questions])

    return {f"{count} boosts": ask(count) for count in (0, 1, 2, 4)}


def main() -> int:
    """Run the cases. 0: done, 1: an answer is not what sums sorted give."""
    return run(
        Comparison(
            name="boosted",
            description=__doc__,
            option="boosted",
            first="none",
            proof="boosted requests answered as sums sorted are",
            find_fault=find_fault,
            list_ways=list_ways,
        )
    )


if __name__ == "__main__":
    sys.exit(main())

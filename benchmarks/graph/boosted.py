"""What boosted answers cost beside others, and whether they are what sums sorted give, by a real graph's scans.

`python -m benchmarks.graph.boosted --cases 50,1000000,64` exports a random network of that size and asks it for the
best items under random boosts, and often a filter. First every answer must be PyTorch's scores, added to and sorted:
`--boosted` requests, in batches. Then the same question is timed without boosts and with one, two and four; ratios
are taken within a round. One thread is measured in CPU time.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.graph.__main__ import race, summarize
from benchmarks.graph.filtered import Filtering, Ranking, draw_question
from benchmarks.harness.cases import Case, draw_network, read_case
from model.contract.allowed import Allowed
from model.contract.golden import compare
from model.contract.query import Question, stack_questions
from model.export.graph import export_network
from model.export.ranking import Scan
from model.nets.network import SequenceNetwork
from service.business_rules.boosts import BoostedSet, Pool, ask_each, merge_sets
from service.inference.engine import open_engine
from service.ranking.divisions import divide

_TOLERANCE = 1e-4
_AT_ONCE = 4
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


def rank_boosted(filtering: Filtering, asked: Sequence[tuple[Question, Sequence[BoostedSet]]]) -> list[Pool]:
    """The pool of each question, all sets of all of them in one run."""
    answers = iter(filtering.rank([one for question, sets in asked for one in ask_each(question, sets)]))
    pools: list[Pool] = []
    for question, sets in asked:
        found = [next(answers) for _ in ask_each(question, sets)]
        pairs = [(np.array(indexes, dtype=np.int32), scores) for indexes, scores in found]
        pools.append(merge_sets(pairs, sets, most=question.k))
    return pools


def find_fault(filtering: Filtering, network: SequenceNetwork, *, boosted: int, seed: int = 0) -> str | None:
    """Say how an answer under random boosts differs from PyTorch's scores, added to and sorted, or None."""
    draw, case = np.random.default_rng(seed), filtering.case
    for _ in range(-(-boosted // _AT_ONCE)):
        asked: list[tuple[Question, list[BoostedSet]]] = []
        for _ in range(_AT_ONCE):
            allowed = Allowed(draw.random(case.items + 2) < draw.choice(_SHARES)) if draw.random() < 0.3 else None
            question = draw_question(draw, case)._replace(k=int(draw.integers(1, 100)), allowed=allowed)
            shares = draw.choice(_SHARES, size=draw.integers(1, 5)).tolist()
            asked.append((question, draw_sets(draw, case, allowed, shares)))
        feed = stack_questions(
            [question for question, _ in asked], max_length=case.max_length, mask_index=case.items + 1
        )
        with torch.inference_mode():
            scores = network(torch.from_numpy(feed["item_ids"]), torch.from_numpy(feed["lengths"])).numpy()
        for (question, sets), pool, row in zip(asked, rank_boosted(filtering, asked), scores, strict=True):
            got = pool.indexes.tolist(), pool.values
            fault = compare(got, _sort(row, question, sets), k=question.k, tolerance=_TOLERANCE)
            if fault is not None:
                return f"{[(one.allowed, one.add) for one in sets]}: {fault}"
    return None


def _sort(scores: NDArray[np.float32], question: Question, sets: Sequence[BoostedSet]) -> Ranking:
    sums = np.full(len(scores), -np.inf)
    for allowed, add in sets:
        of_set = allowed.mask[1:-1]
        sums[of_set] = scores[of_set].astype(np.float64) + add
    sums[question.exclude - 1] = -np.inf
    best = np.argsort(-sums, kind="stable")[: question.k]
    best = best[np.isfinite(sums[best])]
    return (best + 1).tolist(), sums[best].tolist()


def list_ways(filtering: Filtering, rows: int) -> dict[str, Callable[[Any], Any]]:
    """The same questions without boosts, and with ever more of them."""
    draw = np.random.default_rng(1)
    questions = [draw_question(draw, filtering.case) for _ in range(rows)]

    def ask(count: int) -> Callable[[Any], Any]:
        sets = draw_sets(draw, filtering.case, None, _TIMED[:count]) if count else []
        return lambda _feed: rank_boosted(filtering, [(question, sets) for question in questions])

    return {f"{count} boosts": ask(count) for count in (0, 1, 2, 4)}


def main() -> int:
    """Run the cases. 0: done, 1: an answer is not what sums sorted give."""
    options = _make_parser().parse_args()
    torch.set_num_threads(1)
    for case in options.cases:
        network = draw_network(case, options.network)
        graph = export_network(network, scan=options.scan)
        filtering = Filtering(case, open_engine(graph, item_count=case.items, provider="cpu", threads=1))
        fault = find_fault(filtering, network, boosted=options.boosted)
        if fault is not None:
            sys.stderr.write(f"{case}: {fault}\n")
            return 1
        sys.stdout.write(f"{case}: {options.boosted} boosted requests answered as sums sorted are\n")
        for rows in options.rows:
            times = race(
                list_ways(filtering, rows), {}, time.process_time, rounds=options.rounds, seconds=options.seconds
            )
            for way, step in summarize(times).items():
                sys.stdout.write(
                    f"{case}, rows: {rows}: {way}: {step['ms']:.3f} ms CPU (best {step['ms_least']:.3f}), "
                    f"{1 / step['ratio']:.3f} of none ({1 / step['ratio_most']:.3f} to {1 / step['ratio_least']:.3f})\n"
                )
            sys.stdout.flush()
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.graph.boosted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sizes = [Case(50, items, 64) for items in (1_682, 26_744, 1_000_000)]
    parser.add_argument("--cases", nargs="*", type=read_case, default=sizes, help="N,items,D each")
    parser.add_argument("--network", choices=("bert4rec", "sasrec"), default="bert4rec")
    parser.add_argument("--scan", choices=get_args(Scan), help="chosen by the catalogue's size if left out")
    parser.add_argument("--boosted", type=int, default=40, help="requests that are compared with sums sorted first")
    parser.add_argument("--rows", nargs="*", type=int, default=[1], help="questions of a batch")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each number of boosts in a round")
    return parser


if __name__ == "__main__":
    sys.exit(main())

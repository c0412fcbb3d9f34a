"""What filtered answers cost beside unfiltered ones: masks in the graph, and what stands for them where they are small.

`python -m benchmarks.graph.filtered --cases 50,1000000,64` exports a random network of that size and asks it for the
best 10 of what random filters leave. First every answer must be what PyTorch's scores give, filtered, then sorted:
`--filters` of them, alone and in batches. Then, in a round, each filter has its turn, the quickest of a few runs, and
so has the same question unfiltered; ratios are taken within a round. One thread is measured in CPU time.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.graph.__main__ import race, summarize
from benchmarks.harness.cases import Case, K, draw_network, read_case
from model.contract.allowed import Allowed
from model.contract.golden import compare
from model.contract.query import Question, stack_questions
from model.export.graph import export_network
from model.export.ranking import Scan
from model.nets.network import SequenceNetwork
from service.inference.engine import Engine, open_engine
from service.inference.item_masks import apply_mask, plan_of
from service.inference.reranking import pick_rerankings, rerank

_TOLERANCE = 1e-4
_AT_ONCE = 4
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

Ranking = tuple[list[int], list[float]]


class Filtering:
    """One network, asked as the service asks it (service/inference/model.py), but for ids."""

    def __init__(self, case: Case, engine: Engine) -> None:
        self.case, self._engine = case, engine

    def rank(self, questions: Sequence[Question]) -> list[Ranking]:
        """The indexes and scores of each question's best items."""
        questions = [apply_mask(question, takes_masks=self._engine.takes_masks) for question in questions]
        apart = pick_rerankings(questions, item_count=self.case.items)
        answers = dict(zip(apart, rerank([questions[row] for row in apart], self._score), strict=True))
        rest = [row for row in range(len(questions)) if row not in answers]
        if rest:
            asked = [questions[row] for row in rest]
            for row, indexes, scores in zip(rest, *self._engine.rank(self._stack(asked)), strict=True):
                kept = np.isfinite(scores[: questions[row].k])
                answers[row] = indexes[: len(kept)][kept].tolist(), scores[: len(kept)][kept].tolist()
        return [answers[row] for row in range(len(questions))]

    def _score(self, questions: Sequence[Question]) -> NDArray[np.float32]:
        return self._engine.score(self._stack(questions))

    def _stack(self, questions: Sequence[Question]) -> dict[str, NDArray[Any]]:
        return stack_questions(questions, max_length=self.case.max_length, mask_index=self.case.items + 1)


def draw_question(draw: np.random.Generator, case: Case) -> Question:
    """A full window, which is excluded."""
    history = draw.integers(1, case.items + 1, size=case.max_length - 1).astype(np.int32)
    return Question(history, history, None, K)


def find_fault(filtering: Filtering, network: SequenceNetwork, *, filters: int, seed: int = 0) -> str | None:
    """Say how an answer under a random filter differs from PyTorch's scores, filtered and sorted, or None."""
    draw = np.random.default_rng(seed)
    case = filtering.case
    for _ in range(-(-filters // _AT_ONCE)):
        questions = [draw_question(draw, case) for _ in range(_AT_ONCE)]
        feed = stack_questions(questions, max_length=case.max_length, mask_index=case.items + 1)
        with torch.inference_mode():
            scores = network(torch.from_numpy(feed["item_ids"]), torch.from_numpy(feed["lengths"])).numpy()
        asked = [
            question._replace(k=int(draw.integers(1, 100)), allowed=_draw_mask(draw, row))
            for question, row in zip(questions, scores, strict=True)
        ]
        wanted = [_sort(row, question) for row, question in zip(scores, asked, strict=True)]
        for got in (filtering.rank(asked), [filtering.rank([question])[0] for question in asked]):
            for question, answer, expected in zip(asked, got, wanted, strict=True):
                fault = compare(answer, expected, k=question.k, tolerance=_TOLERANCE)
                if fault is not None:
                    return f"{question.allowed} ({plan_of(question.allowed)}): {fault}"
    return None


def _draw_mask(draw: np.random.Generator, scores: NDArray[np.float32]) -> Allowed:
    """A random share of the items, or as many of those that score lowest, as filters that miss the user's taste do."""
    share = draw.choice(_SHARES)
    free = draw.random(len(scores)) < share
    if draw.random() < 0.25:
        free = scores <= np.quantile(scores, share)
    return Allowed(np.pad(free, 1))


def _sort(scores: NDArray[np.float32], question: Question) -> Ranking:
    left = np.ones(len(scores), dtype=bool) if question.allowed is None else question.allowed.mask[1:-1].copy()
    left[question.exclude - 1] = False
    best = np.flatnonzero(left)
    best = best[np.argsort(-scores[best], kind="stable")[: question.k]]
    return (best + 1).tolist(), scores[best].tolist()


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


def list_ways(filtering: Filtering, masks: Mapping[str, Allowed | None], rows: int) -> dict[str, Callable[[Any], Any]]:
    """The same questions under each filter, by its name and what becomes of it."""
    draw = np.random.default_rng(1)
    questions = [draw_question(draw, filtering.case) for _ in range(rows)]

    def ask(mask: Allowed | None) -> Callable[[Any], Any]:
        asked = [question._replace(allowed=mask) for question in questions]
        return lambda _feed: filtering.rank(asked)

    return {name if mask is None else f"{name} ({plan_of(mask)})": ask(mask) for name, mask in masks.items()}


def main() -> int:
    """Run the cases. 0: done, 1: an answer is not what filter-then-sort gives."""
    options = _make_parser().parse_args()
    torch.set_num_threads(1)
    for case in options.cases:
        network = draw_network(case, options.network)
        graph = export_network(network, scan=options.scan)
        filtering = Filtering(case, open_engine(graph, item_count=case.items, provider="cpu", threads=1))
        fault = find_fault(filtering, network, filters=options.filters)
        if fault is not None:
            sys.stderr.write(f"{case}: {fault}\n")
            return 1
        sys.stdout.write(f"{case}: {options.filters} random filters answered as filter-then-sort does\n")
        for rows in options.rows:
            ways = list_ways(filtering, draw_filters(case), rows)
            times = race(ways, {}, time.process_time, rounds=options.rounds, seconds=options.seconds)
            for way, step in summarize(times).items():
                sys.stdout.write(
                    f"{case}, rows: {rows}: {way}: {step['ms']:.3f} ms CPU (best {step['ms_least']:.3f}), "
                    f"{1 / step['ratio']:.3f} of no filter ({1 / step['ratio_most']:.3f} to "
                    f"{1 / step['ratio_least']:.3f})\n"
                )
            sys.stdout.flush()
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.graph.filtered",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sizes = [Case(50, items, 64) for items in (1_682, 26_744, 1_000_000)]
    parser.add_argument("--cases", nargs="*", type=read_case, default=sizes, help="N,items,D each")
    parser.add_argument("--network", choices=("bert4rec", "sasrec"), default="bert4rec")
    parser.add_argument("--scan", choices=get_args(Scan), help="chosen by the catalogue's size if left out")
    parser.add_argument("--filters", type=int, default=40, help="that are compared with filter-then-sort first")
    parser.add_argument("--rows", nargs="*", type=int, default=[1], help="questions of a batch")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each filter in a round")
    return parser


if __name__ == "__main__":
    sys.exit(main())

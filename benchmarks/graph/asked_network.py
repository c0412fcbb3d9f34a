"""What the benchmarks of answers share: a random network of each size is asked, proven and then timed in several ways.

`filtered.py` and `boosted.py` say what is asked and what PyTorch's scores make of it.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benchmarks.graph.__main__ import race, summarize
from benchmarks.graph.steps import Run
from benchmarks.harness.cases import Case, K, draw_network, read_case
from model.contract.query import Question, stack_questions
from model.export.graph import export_network
from model.export.ranking import Scan
from model.nets.network import SequenceNetwork
from service.inference.engine import Engine, open_engine
from service.inference.item_masks import apply_mask
from service.inference.reranking import pick_rerankings, rerank

TOLERANCE = 1e-4
AT_ONCE = 4
"""Questions of a batch of the proof."""

Ranking = tuple[list[int], list[float]]


class AskedNetwork:
    """One network, asked as the service asks it (service/inference/model.py), but for ids; and its scores by PyTorch.

    Shapes: B questions, V items.
    """

    def __init__(self, case: Case, network: SequenceNetwork, engine: Engine) -> None:
        self.case, self._network, self._engine = case, network, engine

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

    def score_all(self, questions: Sequence[Question]) -> NDArray[np.float32]:
        """What PyTorch gives every item after each history: (B, V)."""
        feed = self._stack(questions)
        with torch.inference_mode():
            scores = self._network(torch.from_numpy(feed["item_ids"]), torch.from_numpy(feed["lengths"]))
        found: NDArray[np.float32] = scores.numpy()
        return found

    def _score(self, questions: Sequence[Question]) -> NDArray[np.float32]:
        return self._engine.score(self._stack(questions))

    def _stack(self, questions: Sequence[Question]) -> dict[str, NDArray[Any]]:
        return stack_questions(questions, max_length=self.case.max_length, mask_index=self.case.items + 1)


def draw_question(draw: np.random.Generator, case: Case) -> Question:
    """A full window, which is excluded."""
    history = draw.integers(1, case.items + 1, size=case.max_length - 1).astype(np.int32)
    return Question(history, history, None, K)


def sort_best(scores: NDArray[np.floating[Any]], places: NDArray[np.intp], k: int) -> Ranking:
    """The indexes and scores of the best `k` of some places in a row of V scores, item 1 first; ties as they come."""
    if len(places) > k:  # to sort a million of them takes a hundred times as long
        places = places[np.argpartition(-scores[places], k - 1)[:k]]
    best = places[np.argsort(-scores[places], kind="stable")]
    return (best + 1).tolist(), scores[best].tolist()


def count_batches(requests: int, description: str) -> Iterable[int]:
    """The batches of a proof of so many requests, with a bar where somebody sees it."""
    console = Console(stderr=True)
    batches = range(-(-requests // AT_ONCE))
    return track(batches, description, console=console, transient=True, disable=not console.is_terminal)


class Comparison(NamedTuple):
    """What a benchmark asks, how it proves the answers, and what it times."""

    name: str
    """Of the module in this room."""
    description: str | None
    option: str
    """Its name says what requests have, and how many of them are proven."""
    first: str
    """What the other ways are compared with, in words."""
    proof: str
    """What is said of the answers when they are proven."""
    find_fault: Callable[[AskedNetwork, int], str | None]
    """Says how one of so many answers differs from what PyTorch's scores give, or None."""
    list_ways: Callable[[AskedNetwork, int], Mapping[str, Run]]
    """The ways that are timed, by name, for so many rows."""


def run(comparison: Comparison, arguments: Sequence[str] | None = None) -> int:
    """Prove and time each case. 0: done, 1: an answer is not what PyTorch's scores give."""
    options = _make_parser(comparison).parse_args(arguments)
    torch.set_num_threads(1)
    for case in options.cases:
        network = draw_network(case, options.network)
        graph = export_network(network, scan=options.scan)
        asked = AskedNetwork(case, network, open_engine(graph, item_count=case.items, provider="cpu", threads=1))
        fault = comparison.find_fault(asked, options.requests)
        if fault is not None:
            sys.stderr.write(f"{case}: {fault}\n")
            return 1
        sys.stdout.write(f"{case}: {options.requests} {comparison.proof}\n")
        sys.stdout.flush()
        for rows in options.rows:
            ways = comparison.list_ways(asked, rows)
            times = race(ways, {}, time.process_time, rounds=options.rounds, seconds=options.seconds)
            for way, step in summarize(times).items():
                sys.stdout.write(
                    f"{case}, rows: {rows}: {way}: {step['ms']:.3f} ms CPU (best {step['ms_least']:.3f}), "
                    f"{1 / step['ratio']:.3f} of {comparison.first} ({1 / step['ratio_most']:.3f} to "
                    f"{1 / step['ratio_least']:.3f})\n"
                )
            sys.stdout.flush()
    return 0


def _make_parser(comparison: Comparison) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.graph.{comparison.name}",
        description=comparison.description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sizes = [Case(50, items, 64) for items in (1_682, 26_744, 1_000_000)]
    parser.add_argument("--cases", nargs="*", type=read_case, default=sizes, help="N,items,D each")
    parser.add_argument("--network", choices=("bert4rec", "sasrec"), default="bert4rec")
    parser.add_argument("--scan", choices=get_args(Scan), help="chosen by the catalogue's size if left out")
    parser.add_argument(
        f"--{comparison.option}", dest="requests", type=int, default=40, metavar="COUNT",
        help="requests whose answers are proven first (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--rows", nargs="*", type=int, default=[1], help="questions of a batch; none: nothing is timed")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each way in a round")
    return parser

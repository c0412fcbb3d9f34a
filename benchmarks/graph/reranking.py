"""What ranking named items and explaining answers cost, with the scan of the catalogue and without it.

`python -m benchmarks.graph.reranking --cases 50,1000000,64` exports a random network of that size and asks it for the
best 10 of 100 named items, and for what 10 items owe to each of 20 items of the history, in one batch of histories as
long as the window. Each way answers alike first. Then, in a round, each has its turn, the quickest of a few runs;
ratios are taken within a round. One thread is measured in CPU time.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.graph.__main__ import race, summarize
from benchmarks.graph.steps import Run
from benchmarks.harness.cases import Case, Feed, draw_network, read_case
from model.contract.golden import compare
from model.contract.query import Answer, Question, stack_questions
from model.export.graph import export_network
from service.inference.engine import Engine, open_engine
from service.inference.leave_one_out import leave_each_out
from service.inference.reranking import rerank

_NAMED, _ANSWERED, _HISTORY = 100, 10, 20
_NONE = np.empty(0, dtype=np.int32)
_TOLERANCE = 1e-4


class Asked:
    """Questions to one network: the best of named items, and the reasons of an answer."""

    def __init__(self, case: Case, engine: Engine, *, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self._case, self._engine = case, engine
        full = draw.integers(1, case.items + 1, size=case.max_length - 1).astype(np.int32)
        named = draw.choice(case.items, size=_NAMED, replace=False).astype(np.int32) + 1
        self.named = Question(full, _NONE, named, _ANSWERED)
        window = np.resize(draw.integers(1, case.items + 1, size=_HISTORY), case.max_length - 1).astype(np.int32)
        self.plain = Question(window, _NONE, None, _ANSWERED)

    def stack(self, questions: Sequence[Question]) -> Feed:
        """The graph's inputs."""
        return stack_questions(questions, max_length=self._case.max_length, mask_index=self._case.items + 1)

    def score(self, questions: Sequence[Question]) -> NDArray[np.float32]:
        """The scores of their candidates, without the scan."""
        return self._engine.score(self.stack(questions))

    def scan(self, questions: Sequence[Question]) -> NDArray[np.float32]:
        """The same from the ranking of all items, as many of each question as it names."""
        feed = self.stack(questions)
        named = feed["candidates"]
        indexes, scores = self._engine.rank(feed | {"k": np.array([named.shape[1]])})
        places = np.argsort(np.argsort(named, axis=1), axis=1)
        by_index: NDArray[np.float32] = np.take_along_axis(scores, np.argsort(indexes, axis=1), axis=1)
        return np.take_along_axis(by_index, places, axis=1)

    def rank_by_scan(self) -> Answer:
        """The best of the named items as they were ranked before."""
        indexes, scores = self._engine.rank(self.stack([self.named]))
        return Answer(list(map(str, indexes[0].tolist())), scores[0].tolist())

    def rank_without(self) -> Answer:
        """The same, by their scores alone."""
        [(indexes, scores)] = rerank([self.named], self.score)
        return Answer(list(map(str, indexes)), scores)

    def explain_by(self, score: Callable[[Sequence[Question]], NDArray[np.float32]]) -> Callable[[], Any]:
        """Explain the answer to the plain question."""
        indexes, scores = self._engine.rank(self.stack([self.plain]))
        ranked, full = indexes[0].astype(np.int32), scores[0].tolist()
        return lambda: leave_each_out(self.plain, ranked, full, score)

    def list_ways(self) -> dict[str, dict[str, Callable[[], Any]]]:
        """What is asked, and the ways to answer it, by name."""
        return {
            f"best {_ANSWERED} of {_NAMED} items": {"scan": self.rank_by_scan, "scores alone": self.rank_without},
            f"{_ANSWERED} items explained by {_HISTORY}": {
                "scan": self.explain_by(self.scan),
                "scores alone": self.explain_by(self.score),
            },
            "a plain question, for comparison": {"scan": lambda: self._engine.rank(self.stack([self.plain]))},
        }


def _without_feed(way: Callable[[], Any]) -> Run:
    return lambda _feed: way()


def main() -> int:
    """Run the cases. 0: done, 1: the ways answer differently."""
    options = _make_parser().parse_args()
    torch.set_num_threads(1)
    for case in options.cases:
        graph = export_network(draw_network(case, "bert4rec"))
        asked = Asked(case, open_engine(graph, item_count=case.items, provider="cpu", threads=1))
        fault = find_difference(asked)
        if fault is not None:
            sys.stderr.write(f"{case}: {fault}\n")
            return 1
        for what, ways in asked.list_ways().items():
            runs = {name: _without_feed(way) for name, way in ways.items()}
            times = race(runs, {}, time.process_time, rounds=options.rounds, seconds=options.seconds)
            for way, step in summarize(times).items():
                sys.stdout.write(
                    f"{case}: {what}, {way}: {step['ms']:.3f} ms CPU (best {step['ms_least']:.3f}), "
                    f"{step['ratio']:.2f} times ({step['ratio_least']:.2f} to {step['ratio_most']:.2f})\n"
                )
            sys.stdout.flush()
    return 0


def find_difference(asked: Asked) -> str | None:
    """Say how the ways differ by more than rounding, or None."""
    fault = compare(asked.rank_without(), asked.rank_by_scan(), k=_ANSWERED, tolerance=_TOLERANCE)
    if fault is not None:
        return fault
    by_scan, without = asked.explain_by(asked.scan)(), asked.explain_by(asked.score)()
    weights = [[[weight for _, weight in found] for found in reasons] for _, reasons in (by_scan, without)]
    for some, others in zip(*weights, strict=True):
        if len(some) != len(others) or not np.allclose(some, others, rtol=0, atol=_TOLERANCE):
            return "weights differ"
    return None


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.graph.reranking",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", nargs="*", type=read_case, default=[Case(50, 1_000_000, 64)], help="N,items,D each")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each way in a round")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The lists of `recommend --users all` beside ONNX Runtime alone.

`python -m benchmarks.micro.offline_lists`: N = 50, 3,416 items, D = 64, random weights, full windows, k = 10, one
thread each. Users a second of CPU time and of the clock, in turns. Of each the quickest turn counts: other work on the
machine only slows. `make bench` compares POST /recommend/batch with the same graph (`benchmarks/serving/batches.py`).
"""

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.harness.cases import Case, draw_feed, draw_network
from model.contract.vocabulary import Vocabulary
from model.export.graph import export_network
from model.nets.network import SequenceNetwork
from service.inference.engine import open_engine
from training.data.interactions import Log
from training.evaluation.ranking import NetworkScorer
from training.publish.rankers import GraphRanker
from training.publish.recommend_offline import rank_lists

CASE = Case(50, 3_416, 64)
USERS = 1_024
EVENTS = CASE.max_length - 1
ROWS = 32
"""Rows of a run of ONNX Runtime: what the service's batches hold by default."""
TURNS = 7
K = 10

Turn = Callable[[], None]
"""Answers USERS users."""


class Pace(NamedTuple):
    """Users a second, of the quickest turn."""

    by_cpu: float
    by_clock: float


def main() -> int:
    torch.set_num_threads(1)
    network = draw_network(CASE, "bert4rec")
    vocabulary = Vocabulary.from_items(f"i{number:04d}" for number in range(CASE.items))
    turns = {"ONNX Runtime": _prepare_engine(network), "recommend --users all": _prepare_lists(network, vocabulary)}
    paces = _measure(turns)
    alone = paces["ONNX Runtime"]
    for name, pace in paces.items():
        shares = f"{pace.by_cpu / alone.by_cpu:5.0%} by CPU time, {pace.by_clock / alone.by_clock:5.0%} by the clock"
        print(f"{name:<24}{pace.by_cpu:8.0f} users/s of CPU,{pace.by_clock:8.0f} users/s: {shares}")  # noqa: T201 - the result
    return 0


def _measure(turns: dict[str, Turn]) -> dict[str, Pace]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
    for _ in range(TURNS):
        for name, turn in turns.items():
            cpu_s, clock_s = time.process_time(), time.perf_counter()
            turn()
            taken[name].append((time.process_time() - cpu_s, time.perf_counter() - clock_s))
    return {
        name: Pace(*(USERS / min(seconds) for seconds in zip(*times, strict=True))) for name, times in taken.items()
    }


def _prepare_engine(network: SequenceNetwork) -> Turn:
    """Runs of the published graph with their inputs ready, nothing before them and nothing after."""
    engine = open_engine(export_network(network), item_count=CASE.items, provider="cpu", threads=1)
    feeds = [draw_feed(CASE, ROWS, seed=seed) for seed in range(USERS // ROWS)]

    def turn() -> None:
        for feed in feeds:
            engine.rank(feed)

    return turn


def _prepare_lists(network: SequenceNetwork, vocabulary: Vocabulary) -> Turn:
    """What `nextitem-train recommend --users all` does once log and run are read."""
    histories = np.random.default_rng(0).integers(1, CASE.items + 1, size=USERS * EVENTS).astype(np.int32)
    users = [f"u{user:04d}" for user in range(USERS)]
    offsets = np.arange(USERS + 1) * EVENTS
    log = Log(user_ids=users, vocabulary=vocabulary, offsets=offsets, items=histories, timestamps_ms=None)
    ranker = GraphRanker(NetworkScorer(network, log.histories))

    def turn() -> None:
        lists = rank_lists(ranker, log, np.arange(USERS), K, on_users=lambda _count: None)
        assert len(lists) == USERS * K  # noqa: S101 - a list for everybody

    return turn


if __name__ == "__main__":
    sys.exit(main())

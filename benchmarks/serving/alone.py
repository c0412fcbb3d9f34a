"""ONNX Runtime alone: the service's graph in this process, on one thread, fed with what the service would feed it."""

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness.closed_loop import Sample
from benchmarks.serving.roster import K
from model.contract.bundle import read_bundle
from model.contract.query import Question, stack_questions
from service.inference.engine import Engine, open_engine

BATCH = 16
LARGE_BATCH = 64
_QUESTIONS = 256


class Alone:
    """A bundle's graph, and the questions of users."""

    def __init__(self, bundle: Path, histories: Sequence[Sequence[str]]) -> None:
        found = read_bundle(bundle)
        self._engine: Engine = open_engine(
            found.network, item_count=found.manifest.item_count, provider="cpu", threads=1
        )
        self._max_length, self._mask_index = found.manifest.max_length, found.vocabulary.mask_index
        known = [found.vocabulary.encode_known(history) for history in histories]
        questions = [Question(history=items, exclude=items, candidates=None, k=K) for items in known]
        self._questions = list(itertools.islice(itertools.cycle(questions), max(_QUESTIONS, len(questions))))

    def run(self, rows: int) -> Callable[[float], Sample]:
        """Load by batches of so many rows: `rate` is rows a second, latency that of a batch."""
        starts = range(0, len(self._questions) - rows + 1, rows)
        feeds = [
            stack_questions(
                self._questions[start : start + rows], max_length=self._max_length, mask_index=self._mask_index
            )
            for start in starts
        ]

        def load(seconds: float) -> Sample:
            sample = Sample()
            began_s = time.perf_counter()
            for feed in itertools.cycle(feeds):
                before_s = time.perf_counter()
                self._engine.rank(feed)
                now_s = time.perf_counter()
                sample.latencies += [now_s - before_s] * len(feed["lengths"])
                if now_s - began_s > seconds:
                    break
            sample.seconds = time.perf_counter() - began_s
            return sample

        return load

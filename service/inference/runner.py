"""Runs the model on the event loop's thread or on the engine's, and knows whether the engine works."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from model.contract.query import Answer, Question
from service.errors import EngineUnavailable
from service.inference.engine import CUDA
from service.inference.model import LiveModel
from service.inference.run_time import RunTimeEstimator
from service.inference.thread import EngineThread

INLINE_S = 0.004
"""Shorter runs on a CPU are made on the event loop's thread. Handing a run to another thread and back costs a sixth of
an answer, and the loop has little else to do meanwhile (docs/lab/2026-11-22-cost-of-an-answer.md)."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class EngineRunner:
    """Makes one run after another and keeps the state of the engine."""

    def __init__(
        self,
        thread: EngineThread,
        *,
        stuck_after_s: float,
        on_run: Callable[[int, float | None], None] = lambda _questions, _seconds: None,
    ) -> None:
        """Take the engine's thread for runs that would block the event loop.

        `on_run` gets the questions and the seconds of each run, None for a failed one.
        """
        self._thread = thread
        self._on_run = on_run
        self.may_block = True
        """Whether short runs may be made on the event loop's thread. A model that nobody knows yet may turn slow."""
        self.stuck_after_s = stuck_after_s
        """A run that takes longer is stuck. Until it ends the engine counts as unavailable."""
        self._run_time = RunTimeEstimator()
        self._failed = False
        self._running_since_s: float | None = None

    @property
    def stuck(self) -> bool:
        """Whether the current run hangs."""
        since_s = self._running_since_s
        return since_s is not None and time.perf_counter() - since_s > self.stuck_after_s

    @property
    def fails(self) -> bool:
        """Whether the last run failed or the current one hangs."""
        return self._failed or self.stuck

    def predict_s(self, questions: int) -> float:
        """An upper estimate of the seconds of a run; infinity while unknown."""
        return self._run_time.predict_s(questions)

    async def rank(self, model: LiveModel, choose: Callable[[], Sequence[Question]], *, most: int) -> Sequence[Answer]:
        """Answer in one run. Raises EngineUnavailable.

        `choose` is called when the run begins, in the thread that makes it. It returns at most `most` questions; if it
        returns none, the model does not run.
        """
        try:
            short = model.engine.provider != CUDA and self._run_time.predict_s(most) < INLINE_S
            if short and self.may_block and self._thread.idle:
                answers, seconds = self._run(model, choose)
            else:
                loop = asyncio.get_running_loop()
                answers, seconds = await loop.run_in_executor(self._thread, self._run, model, choose)
        except EngineUnavailable as error:
            self._on_run(most, None)
            self._failed = True
            self._run_time.reset()
            _log.error("Engine failed: answering without the model", extra={"fields": {"why": str(error)}})
            raise
        if answers:
            self._on_run(len(answers), seconds)
        self._failed = self._failed and not answers
        return answers

    def start(self, work: Callable[[], T]) -> Future[T]:
        """Begin other work of the engine on its thread, behind the runs that wait there.

        It counts as no run, but if it hangs the engine is stuck. Who cancels it before it begins takes it out again.
        """
        return self._thread.submit(self._do, work)

    def close(self) -> None:
        """End the thread after its queued runs. Does not wait: a hanging run is abandoned."""
        self._thread.shutdown(wait=False)

    def _do(self, work: Callable[[], T]) -> T:
        self._running_since_s = time.perf_counter()
        try:
            return work()
        finally:
            self._running_since_s = None

    def _run(self, model: LiveModel, choose: Callable[[], Sequence[Question]]) -> tuple[Sequence[Answer], float]:
        """The answers, and the seconds of the run."""
        questions = choose()
        if not questions:
            return (), 0.0
        self._running_since_s = began_s = time.perf_counter()
        try:
            answers = model.rank(questions)
        finally:
            self._running_since_s = None
        seconds = time.perf_counter() - began_s
        self._run_time.record(len(questions), seconds)
        return answers, seconds

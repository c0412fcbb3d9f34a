"""The thread that the engine runs in, so that a run does not hold up the event loop."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class EngineThread(Executor):
    """Runs calls one after another.

    Unlike ThreadPoolExecutor's, the thread does not keep the process from ending: a run may never come back.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._owed: Future[Any] | None = None
        threading.Thread(target=self._work, name="engine", daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call after those before it."""
        future: Future[T] = Future()
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        self._owed = future
        return future

    @property
    def idle(self) -> bool:
        """Whether all calls are done."""
        return self._owed is None or self._owed.done()

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as Executor has it
        """End the thread after the calls that it has. Never waits."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _run(*job)
            del job  # or the last answer would live until the next call


def _run(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it is the answer of whoever waits
        future.set_exception(error)
    else:
        future.set_result(result)

"""The engine's thread: runs there do not block the event loop."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class EngineThread(Executor):
    """Runs calls one after another in a daemon thread.

    Unlike ThreadPoolExecutor's threads it does not keep the process from ending, since a run may hang.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._last_job: Future[Any] | None = None
        threading.Thread(target=self._run_jobs, name="engine", daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call behind those before it."""
        future: Future[T] = Future()
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        self._last_job = future
        return future

    @property
    def idle(self) -> bool:
        """Whether all calls are done."""
        return self._last_job is None or self._last_job.done()

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as Executor has it
        """End the thread after its queued calls. Never waits."""
        self._jobs.put(None)

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            _run_job(*job)
            del job  # else the last result would live until the next call


def _run_job(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - passed on to the caller
        future.set_exception(error)
    else:
        future.set_result(result)

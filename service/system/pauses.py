"""How long threads or an event loop had to stand still: measured from within, while something else works."""

import asyncio
import threading
import time
from types import TracebackType
from typing import Final, Self

_BEAT_S: Final = 0.0005
_TICK_S: Final = 0.002


class GilWatch:
    """A thread that wakes every half millisecond, and notes how long it could not, for want of the GIL.

    A gap counts only as far as this process used the CPU meanwhile: a busy machine that ran others is no pause.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gil-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        woke_s, used_s = time.perf_counter(), time.process_time()
        while not self._stopped.is_set():
            time.sleep(_BEAT_S)
            now_s, cpu_s = time.perf_counter(), time.process_time()
            self.longest_s = max(self.longest_s, min(now_s - woke_s, cpu_s - used_s) - _BEAT_S)
            woke_s, used_s = now_s, cpu_s


class LoopWatch:
    """Measures the longest time that an event loop stood still, from `start` to `stop`, both called on the loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Begin to measure, on the running loop."""
        self._plan(asyncio.get_running_loop())

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._note(asyncio.get_running_loop())
            self._timer = None

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_s = loop.time() + _TICK_S
        self._timer = loop.call_later(_TICK_S, self._fire, loop)

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._note(loop)
        self._plan(loop)

    def _note(self, loop: asyncio.AbstractEventLoop) -> None:
        self.longest_s = max(self.longest_s, loop.time() - self._due_s)

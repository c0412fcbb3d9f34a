"""Lets other threads run beside long work in Python, and ends work that nobody waits for any more."""

import math
import threading
import time

STEP_S = 0.0003
"""Python lets another thread in only after 5 ms unless the running one sleeps: the event loop would wait so long."""


class OutOfTime(Exception):
    """The work took too long, or the service stops."""


class Pace:
    """The pace of one piece of work in a thread: half of the time is for others."""

    def __init__(self, stopped: threading.Event, *, within_s: float = math.inf) -> None:
        """The time counts from now. The work ends early, too, once `stopped` is set."""
        self._stopped = stopped
        self._until_s = time.perf_counter() + within_s
        self._next_s = 0.0

    def rest(self) -> None:
        """Sleep, if the work went on for STEP_S. Call it after each step, well under STEP_S long. Raises OutOfTime."""
        now_s = time.perf_counter()
        if now_s < self._next_s:
            return
        if now_s > self._until_s or self._stopped.is_set():
            raise OutOfTime
        time.sleep(STEP_S)
        self._next_s = time.perf_counter() + STEP_S

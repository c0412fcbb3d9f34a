"""A circuit breaker: a store that mostly fails is not asked for a while, so that nobody waits for it in vain.

closed      every call goes through; too many failures of late open it
open        no call goes through, for PAUSE_S
half-open   one call goes through, and what becomes of it closes or opens the breaker
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.errors import StoreUnavailable

WINDOW_S = 10
CALLS = 20
"""With fewer calls in the window nothing can be said."""
FAILURES = 0.5
"""The share of failures at which it opens."""
PAUSE_S = 2.0
PATIENCE_S = 0.05
"""A call that was given less time than that may run out of it though the store is well: it says nothing."""

_log = logging.getLogger(__name__)


class Breaker:
    """Stands before one operation of the store, which `name` names for the log."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._seconds: deque[tuple[int, list[int]]] = deque()
        """Calls and failures by second, oldest first."""
        self._opened_s: float | None = None
        self._probing = False

    @property
    def closed(self) -> bool:
        """Whether calls go through."""
        return self._opened_s is None

    @contextmanager
    def guard(self, *, within_s: float = math.inf) -> Iterator[None]:
        """Around one call that is given `within_s` seconds. Raises StoreUnavailable at once if it may not be made."""
        probe = self._admit()
        try:
            yield
        except StoreUnavailable as error:
            if not ran_out(error, within_s):
                # A store that answers nonsense answers, and one that is not safe has a guard of its own.
                self._judge(failed=error.kind not in ("script", "unsafe"), probe=probe)
            raise
        else:
            self._judge(failed=False, probe=probe)
        finally:
            if probe:
                self._probing = False

    def _admit(self) -> bool:
        """Whether the call that is about to be made is a probe."""
        if self._opened_s is None:
            return False
        if self._probing or self._clock() - self._opened_s < PAUSE_S:
            raise StoreUnavailable
        self._probing = True
        return True

    def _judge(self, *, failed: bool, probe: bool) -> None:
        if probe:
            self._settle(failed)
        elif self._opened_s is None:  # else it was begun before and says what is known
            self._count(failed)

    def _settle(self, failed: bool) -> None:
        self._opened_s = self._clock() if failed else None
        if not failed:
            _log.info("Calls to the store (%s) succeed again", self._name)

    def _count(self, failed: bool) -> None:
        now_s = self._clock()
        second = int(now_s)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, [0, 0]))
        while self._seconds[0][0] <= second - WINDOW_S:
            self._seconds.popleft()
        self._seconds[-1][1][0] += 1
        self._seconds[-1][1][1] += failed
        calls = sum(counts[0] for _, counts in self._seconds)
        failures = sum(counts[1] for _, counts in self._seconds)
        if calls >= CALLS and failures >= FAILURES * calls:
            self._opened_s = now_s
            self._seconds.clear()
            _log.error("Calls to the store (%s) mostly fail, so it is tried every %g s only", self._name, PAUSE_S)


def ran_out(error: StoreUnavailable, within_s: float) -> bool:
    """Whether a call failed for want of time that it was not given."""
    return error.kind == "timeout" and within_s < PATIENCE_S

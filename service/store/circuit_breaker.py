"""A circuit breaker: while most calls to the store fail, calls fail at once instead of waiting for it.

closed      every call goes through; too many recent failures open it
open        no call goes through for PAUSE_S
half-open   one call, the probe, goes through; its outcome closes or reopens the breaker
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
"""With fewer calls in the window the breaker stays closed."""
FAILURES = 0.5
"""The share of failed calls at which it opens."""
PAUSE_S = 2.0
PATIENCE_S = 0.05
"""A call with less time than this may time out although the store is well, so its timeout does not count."""

_log = logging.getLogger(__name__)


class CircuitBreaker:
    """The breaker of one kind of store operation, called `name` in the log."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._seconds: deque[tuple[int, list[int]]] = deque()
        """Calls and failures by second, oldest first."""
        self._calls = self._failures = 0
        """The sums of these."""
        self._opened_s: float | None = None
        self._probing = False

    @property
    def closed(self) -> bool:
        """Whether calls go through."""
        return self._opened_s is None

    @contextmanager
    def guard(self, *, within_s: float = math.inf) -> Iterator[None]:
        """Guard one call with a time limit of `within_s` seconds. Raises StoreUnavailable at once while open."""
        probe = self._admit()
        try:
            yield
        except StoreUnavailable as error:
            if not ran_out(error, within_s):
                # A wrong reply is a reply, and an unsafe store has a guard of its own (durability.py).
                self._record(failed=error.kind not in ("script", "damaged", "unsafe"), probe=probe)
            raise
        else:
            self._record(failed=False, probe=probe)
        finally:
            if probe:
                self._probing = False

    def _admit(self) -> bool:
        """Whether the next call is a probe. Raises StoreUnavailable while open."""
        if self._opened_s is None:
            return False
        if self._probing or self._clock() - self._opened_s < PAUSE_S:
            raise StoreUnavailable
        self._probing = True
        return True

    def _record(self, *, failed: bool, probe: bool) -> None:
        if probe:
            self._finish_probe(failed)
        elif self._opened_s is None:  # else the call began before the breaker opened
            self._count(failed)

    def _finish_probe(self, failed: bool) -> None:
        self._opened_s = self._clock() if failed else None
        if not failed:
            _log.warning("Circuit breaker closed for store %s: a probe succeeded", self._name)

    def _count(self, failed: bool) -> None:
        now_s = self._clock()
        second = int(now_s)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, [0, 0]))
        while self._seconds[0][0] <= second - WINDOW_S:
            _, (calls, failures) = self._seconds.popleft()
            self._calls -= calls
            self._failures -= failures
        self._seconds[-1][1][0] += 1
        self._seconds[-1][1][1] += failed
        self._calls += 1
        self._failures += failed
        calls, failures = self._calls, self._failures
        if calls >= CALLS and failures >= FAILURES * calls:
            self._opened_s = now_s
            self._seconds.clear()
            self._calls = self._failures = 0
            _log.error(
                "Circuit breaker open for store %s: %d of %d calls in %d s failed; probing every %g s",
                self._name,
                failures,
                calls,
                WINDOW_S,
                PAUSE_S,
            )


def ran_out(error: StoreUnavailable, within_s: float) -> bool:
    """Whether a call timed out because its own time limit was too short to judge the store."""
    return error.kind == "timeout" and within_s < PATIENCE_S

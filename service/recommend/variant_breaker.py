"""Takes a candidate that fails or is slow out of use, so that its users lose no more time by it.

closed      the candidate answers its users
open        the champion answers them, for PAUSE_S; then the breaker is closed and counts anew
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 10.0
LEAST_TRIES = 20
"""With fewer tries in the window the breaker stays closed."""
BAD_SHARE = 0.5
PAUSE_S = 60.0
SLOWER = 3.0
SLOWER_S = 0.005
"""A run is slow if it takes more than SLOWER times as long as the champion's, and SLOWER_S longer than that: the
shortest runs vary by more than their own length on a busy machine."""

_log = logging.getLogger(__name__)


class VariantBreaker:
    """Counts a candidate's tries: its runs, and the requests that it did not answer in time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: deque[tuple[float, bool]] = deque(maxlen=1000)
        """When each was, and whether it was bad; the newest ones where there are very many."""
        self._bad = 0
        self._opened_s = -math.inf

    @property
    def open(self) -> bool:
        """Whether the candidate is out of use."""
        return self._clock() - self._opened_s < PAUSE_S

    def record_run(self, seconds: float | None, *, champion_s: float) -> bool:
        """Count a run of so many seconds, or a failed one, where the champion's take `champion_s`. As `record`."""
        return self.record(bad=seconds is None or seconds > SLOWER * champion_s + SLOWER_S)

    def record(self, *, bad: bool) -> bool:
        """Count a try. Returns whether it opened the breaker."""
        if self.open:  # it began before
            return False
        now_s = self._clock()
        if len(self._tries) == self._tries.maxlen:
            self._forget_first()
        self._tries.append((now_s, bad))
        self._bad += bad
        while self._tries[0][0] <= now_s - WINDOW_S:
            self._forget_first()
        tries = len(self._tries)
        opens = tries >= LEAST_TRIES and self._bad >= BAD_SHARE * tries
        if opens:
            _log.error(
                "The candidate fails or is slow: the champion answers for it for %g s (%d of %d tries were bad)",
                PAUSE_S,
                self._bad,
                tries,
            )
            self._opened_s, self._bad = now_s, 0
            self._tries.clear()
        return opens

    def _forget_first(self) -> None:
        self._bad -= self._tries.popleft()[1]

"""A token bucket: so many trials a second, and no more than a second's at once."""

import time
from collections.abc import Callable


class TokenBucket:
    """Gains `rate` tokens a second, and holds at most a second's, or one."""

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._tokens = self._most
        self._clock = clock
        self._filled_s = clock()

    def peek(self) -> float:
        """How many tokens there are now."""
        now_s = self._clock()
        self._tokens = min(self._most, self._tokens + self._rate * (now_s - self._filled_s))
        self._filled_s = now_s
        return self._tokens

    def take(self, tokens: int) -> None:
        """Take tokens that are there."""
        self._tokens = max(0.0, self._tokens - tokens)

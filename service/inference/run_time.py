"""Estimates how long a run of the engine takes, from its recent runs."""

import math
from collections import defaultdict, deque

_RECENT = 8


class RunTimeEstimator:
    """Predicts the slowest of the last runs with a similar number of rows; infinity until there were enough.

    Rows are grouped by powers of two. A run has a fixed cost, so the time of one row says little about sixteen.
    """

    def __init__(self) -> None:
        self._recent_s: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_RECENT))

    def record(self, rows: int, seconds: float) -> None:
        self._recent_s[rows.bit_length()].append(seconds)

    def reset(self) -> None:
        """Forget all runs after a failure: the next one may hang."""
        self._recent_s.clear()

    def predict_s(self, rows: int) -> float:
        """An upper estimate of the seconds for a run of `rows` rows; infinity while unknown."""
        recent_s = self._recent_s[rows.bit_length()]
        return max(recent_s) if len(recent_s) == _RECENT else math.inf

"""How long a run of the engine will take, by how long it took of late."""

import math
from collections import defaultdict, deque

_RECENT = 8


class Pace:
    """Judges by the slowest of the last runs of about as many rows. Knows nothing until there were enough.

    Rows are grouped by powers of two: a run has a price of its own, so that one row says little of sixteen.
    """

    def __init__(self) -> None:
        self._recent_s: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_RECENT))

    def ran(self, rows: int, seconds: float) -> None:
        """A run of so many rows ended well."""
        self._recent_s[rows.bit_length()].append(seconds)

    def forget(self) -> None:
        """A run failed: whatever was known, the next one may hang."""
        self._recent_s.clear()

    def predict_s(self, rows: int) -> float:
        """The seconds that so many rows will take at most, if they are like the last; infinite while unknown."""
        recent_s = self._recent_s[rows.bit_length()]
        return max(recent_s) if len(recent_s) == _RECENT else math.inf

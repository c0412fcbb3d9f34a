"""How long a run of the engine will take, by how long it took of late."""

import math
from collections import deque

_RECENT = 8


class Pace:
    """Judges by the slowest of the last runs, each by its rows. Knows nothing until there were enough."""

    def __init__(self) -> None:
        self._row_s: deque[float] = deque(maxlen=_RECENT)

    def ran(self, rows: int, seconds: float) -> None:
        """A run of so many rows ended well."""
        self._row_s.append(seconds / rows)

    def forget(self) -> None:
        """A run failed: whatever was known, the next one may hang."""
        self._row_s.clear()

    def predict_s(self, rows: int) -> float:
        """The seconds that so many rows will take at most, if they are like the last; infinite while unknown."""
        return rows * max(self._row_s) if len(self._row_s) == _RECENT else math.inf

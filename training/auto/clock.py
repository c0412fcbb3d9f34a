"""The minutes that `fit` without a recipe may take, from its first moment on."""

import time


class Clock:
    """Counts from when the command began."""

    def __init__(self, seconds: float, begun: float | None = None) -> None:
        """`begun` is what `time.monotonic` said then; without it, it is now."""
        self.total = seconds
        self._begun = time.monotonic() if begun is None else begun

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._begun

    @property
    def left(self) -> float:
        """Seconds that are left, 0 at the least."""
        return max(0.0, self.total - self.elapsed)

"""Counts as plain numbers, handed to prometheus_client now and then.

Its own observe takes two microseconds, three into the files of several workers, and an answer makes ten of them.
"""

from bisect import bisect_left

from prometheus_client import Counter, Gauge, Histogram


class Tally:
    """What a histogram observed since it was last settled."""

    __slots__ = ("_bounds", "_counts", "_histogram", "_sum")

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._bounds = tuple(histogram._upper_bounds)  # noqa: SLF001 - it has no way to take many observations at once
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """One observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def settle(self) -> None:
        """Hand it over."""
        if not any(self._counts):
            return
        for bucket, count in zip(self._histogram._buckets, self._counts, strict=True):  # noqa: SLF001 - as said
            if count:
                bucket.inc(count)
        self._histogram._sum.inc(self._sum)  # noqa: SLF001 - as said
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0


class Count:
    """What a counter counted since it was last settled."""

    __slots__ = ("_counter", "_value")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._value = 0

    def inc(self, amount: int = 1) -> None:
        """So many more."""
        self._value += amount

    def settle(self) -> None:
        """Hand it over."""
        if self._value:
            self._counter.inc(self._value)
            self._value = 0


class Level:
    """What a gauge shows the next time that it is settled."""

    __slots__ = ("_gauge", "_value")

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._value = 0

    def set(self, value: int) -> None:
        """So much now."""
        self._value = value

    def settle(self) -> None:
        """Hand it over."""
        self._gauge.set(self._value)

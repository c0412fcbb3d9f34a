"""Buffered metrics: plain numbers that are flushed to prometheus_client at intervals.

An observe of prometheus_client takes two microseconds, or three with several workers, and an answer makes ten of them.
"""

from bisect import bisect_left
from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram


class BufferedHistogram:
    """A histogram's observations since the last flush."""

    __slots__ = ("_bounds", "_counts", "_histogram", "_sum")

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._bounds = tuple(histogram._upper_bounds)  # noqa: SLF001 - it has no API for many observations at once
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def flush(self) -> None:
        """Pass the buffered value to prometheus_client."""
        if not any(self._counts):
            return
        for bucket, count in zip(self._histogram._buckets, self._counts, strict=True):  # noqa: SLF001 - as said
            if count:
                bucket.inc(count)
        self._histogram._sum.inc(self._sum)  # noqa: SLF001 - as said
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0


class BufferedCounter:
    """A counter's increments since the last flush."""

    __slots__ = ("_counter", "_value")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._value = 0

    def inc(self, amount: int = 1) -> None:
        self._value += amount

    def flush(self) -> None:
        """Pass the buffered value to prometheus_client."""
        if self._value:
            self._counter.inc(self._value)
            self._value = 0


class BufferedGauge:
    """A gauge's value for the next flush."""

    __slots__ = ("_gauge", "_value")

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._value = 0

    def set(self, value: int) -> None:
        self._value = value

    def flush(self) -> None:
        """Pass the buffered value to prometheus_client."""
        self._gauge.set(self._value)


class Buffers:
    """Makes buffered metrics and flushes them all."""

    def __init__(self) -> None:
        self._flushes: list[Callable[[], None]] = []

    def histogram(self, histogram: Histogram) -> BufferedHistogram:
        """Buffer a histogram, or one of its series."""
        buffered = BufferedHistogram(histogram)
        self.add(buffered.flush)
        return buffered

    def counter(self, counter: Counter) -> BufferedCounter:
        """Buffer a counter, or one of its series."""
        buffered = BufferedCounter(counter)
        self.add(buffered.flush)
        return buffered

    def gauge(self, gauge: Gauge) -> BufferedGauge:
        """Buffer a gauge."""
        buffered = BufferedGauge(gauge)
        self.add(buffered.flush)
        return buffered

    def add(self, flush: Callable[[], None]) -> None:
        """Have something else flushed, too, after all that was added before it."""
        self._flushes.append(flush)

    def flush(self) -> None:
        """Flush everything, in the order in which it was added."""
        for flush in self._flushes:
            flush()

"""Buffered metrics: once flushed, prometheus_client shows what it would have counted itself."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from service.telemetry.buffered import BufferedCounter, BufferedGauge, BufferedHistogram

BOUNDS = (0.5, 1.0, 2.0)


@pytest.mark.parametrize("flushed_after", [1, 7, 1000])
def test_a_flushed_buffer_equals_a_histogram_that_observed_everything(flushed_after):
    """Bounds included, whenever it is flushed, also twice."""
    values = [0.0, *BOUNDS, 0.50001, 3.0, *(number / 67 for number in range(200))]
    shown = []
    for buffered in (False, True):
        registry = CollectorRegistry()
        histogram = Histogram("x", "x", buckets=BOUNDS, registry=registry)
        series = BufferedHistogram(histogram)
        for number, value in enumerate(values, start=1):
            (series if buffered else histogram).observe(value)
            if buffered and number % flushed_after == 0:
                series.flush()
        if buffered:
            series.flush()
            series.flush()
        lines = generate_latest(registry).decode().splitlines()
        shown.append({line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"})
    shown[0].pop("x_created", None), shown[1].pop("x_created", None)
    assert shown[1] == pytest.approx(shown[0])


def test_counters_and_gauges_are_flushed_once():
    """A counter adds up, a gauge shows the last value."""
    registry = CollectorRegistry()
    counter, gauge = Counter("c", "c", registry=registry), Gauge("g", "g", registry=registry)
    count, level = BufferedCounter(counter), BufferedGauge(gauge)
    count.inc()
    count.inc(4)
    level.set(3)
    level.set(2)
    for series in (count, level, count, level):
        series.flush()
    assert registry.get_sample_value("c_total") == 5
    assert registry.get_sample_value("g") == 2

"""Tallies: settled, prometheus_client shows what it would have counted itself."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from service.tally import Count, Level, Tally

BOUNDS = (0.5, 1.0, 2.0)


@pytest.mark.parametrize("settled_after", [1, 7, 1000])
def test_a_settled_tally_is_what_the_histogram_would_have_observed(settled_after):
    """Bounds included, whenever it is settled, also twice."""
    values = [0.0, *BOUNDS, 0.50001, 3.0, *(number / 67 for number in range(200))]
    shown = []
    for tallied in (False, True):
        registry = CollectorRegistry()
        histogram = Histogram("x", "x", buckets=BOUNDS, registry=registry)
        series = Tally(histogram) if tallied else histogram
        for number, value in enumerate(values, start=1):
            series.observe(value)
            if tallied and number % settled_after == 0:
                series.settle()
        if tallied:
            series.settle()
            series.settle()
        lines = generate_latest(registry).decode().splitlines()
        shown.append({line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"})
    shown[0].pop("x_created", None), shown[1].pop("x_created", None)
    assert shown[1] == pytest.approx(shown[0])


def test_counts_and_levels_are_handed_over_once():
    """A count adds up, a level is the last one."""
    registry = CollectorRegistry()
    counter, gauge = Counter("c", "c", registry=registry), Gauge("g", "g", registry=registry)
    count, level = Count(counter), Level(gauge)
    count.inc()
    count.inc(4)
    level.set(3)
    level.set(2)
    for series in (count, level, count, level):
        series.settle()
    assert registry.get_sample_value("c_total") == 5
    assert registry.get_sample_value("g") == 2

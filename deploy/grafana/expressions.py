"""PromQL as the dashboard needs it, of the job and the instances chosen. A ratio without traffic is empty, not NaN."""

from dataclasses import dataclass
from typing import Final

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

_CHOSEN: Final = 'job=~"$job", instance=~"$instance"'


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and what its series are called: a name, or a template of labels."""

    legend: str
    expr: str


def select(metric: str, *matchers: str) -> str:
    """The series of a metric."""
    return f"{metric}{{{', '.join((_CHOSEN, *matchers))}}}"


def rate(metric: str, *matchers: str, by: str = "") -> str:
    """What a counter gains a second, all instances together."""
    return f"sum{f' by ({by})' if by else ''} (rate({select(metric, *matchers)}[$__rate_interval]))"


def ratio(part: str, whole: str) -> str:
    """A part of a whole, both sums without labels."""
    return f"{part} / ({whole} > 0)"


def shares(parts: str, whole: str) -> str:
    """Parts of a whole: sums by label over one without."""
    return f"{parts} / on () group_left () ({whole} > 0)"


def quantile(q: float, histogram: str, *matchers: str, by: str = "") -> str:
    """A quantile of a histogram, from its buckets."""
    return _estimate(q, rate(f"{histogram}_bucket", *matchers, by=f"le, {by}" if by else "le"))


def recorded_quantile(q: float, buckets: str, *, by: str) -> str:
    """A quantile of buckets whose rate a rule has recorded."""
    return _estimate(q, f"sum by (le, {by}) ({select(buckets)})")


def mean(histogram: str, *matchers: str) -> str:
    """The mean of what a histogram saw."""
    return ratio(rate(f"{histogram}_sum", *matchers), rate(f"{histogram}_count", *matchers))


def quantiles(histogram: str) -> list[Query]:
    """The quantiles that everything slow is looked at by."""
    return [Query(name, quantile(q, histogram)) for name, q in QUANTILES.items()]


def _estimate(q: float, buckets: str) -> str:
    return f"histogram_quantile({q}, {buckets}) >= 0"  # without observations it is NaN, which no comparison lets pass

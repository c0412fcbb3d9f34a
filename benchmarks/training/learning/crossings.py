"""When a curve of learning crosses what papers print."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training.benchmark.published import find_sources
from training.evaluation.metrics import PRIMARY_METRIC

PROTOCOL = "P2"
"""What the systems are asked: leave-one-out, all items ranked, seen ones removed."""
_NETWORKS = ("BERT4Rec", "SASRec", "SASRec+", "gSASRec", "GRU4Rec")
"""Published rows of models that learn step by step on sequences."""


@dataclass(frozen=True)
class Crossing:
    """Where a curve first reaches a height."""

    at: float
    after: float | None
    """The last measured place below the height, None where the very first one reaches it: `at` is then the latest that
    it can have been."""


@dataclass(frozen=True)
class PublishedRow:
    """What one table prints for one model."""

    model: str
    source: str
    height: float


def find_crossing(points: Sequence[tuple[float, float]], height: float) -> Crossing | None:
    """Where points (x, y) in the order of x first reach a height, on the line to it from the point before; or None."""
    before: tuple[float, float] | None = None
    for x, y in points:
        if y >= height:
            if before is None:
                return Crossing(x, None)
            x0, y0 = before
            return Crossing(x0 + (x - x0) * (height - y0) / (y - y0), x0)
        before = x, y
    return None


def list_points(curve: Mapping[str, Any], asked: str) -> list[tuple[float, float]]:
    """CPU seconds and NDCG@10 of a curve's checks on the validation or the test questions."""
    return [(check["cpu_seconds"], check[asked][PRIMARY_METRIC]) for check in curve["checks"]]


def list_published(fingerprint: str) -> list[PublishedRow]:
    """NDCG@10 of published networks on one log under P2, the lowest first."""
    rows = [
        PublishedRow(model, source.name, row[1])
        for source in find_sources(fingerprint, PROTOCOL)
        for model, row in source.rows.items()
        if model in _NETWORKS
    ]
    return sorted(rows, key=lambda row: row.height)


def describe_crossings(curves: Sequence[Mapping[str, Any]], rows: Sequence[PublishedRow]) -> list[dict[str, Any]]:
    """For each row and curve the CPU minutes at which its test NDCG@10 crosses the row, None where it does not."""
    return [{**vars(row), "crossed": [_describe_crossing(curve, row.height) for curve in curves]} for row in rows]


def _describe_crossing(curve: Mapping[str, Any], height: float) -> dict[str, Any]:
    points = list_points(curve, "test")
    found = find_crossing(points, height)
    return {
        "network": curve["network"],
        "system": curve["system"],
        "cpu_minutes": None if found is None else found.at / 60,
        "after_cpu_minutes": None if found is None or found.after is None else found.after / 60,
        "measured_cpu_minutes": points[-1][0] / 60 if points else 0.0,
    }

"""Test metrics as documents: a network beside the baselines, with what chance alone could explain."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.bootstrap import estimate_intervals
from training.evaluation import Marks
from training.metrics import LIST_LENGTH
from training.protocol import PROTOCOLS, Exam

SHOWN = ("HR@10", "NDCG@10", "MRR")
DECIDES = "NDCG@10"

Document = dict[str, Any]


def describe_values(values: Mapping[str, NDArray[np.float64]], seed: int) -> dict[str, dict[str, float]]:
    """Each metric's mean over users with its 95 % interval by bootstrap."""
    lows, highs = estimate_intervals(np.stack(list(values.values()), axis=1), seed)
    return {
        name: {"value": float(value.mean()), "low": float(low), "high": float(high)}
        for (name, value), low, high in zip(values.items(), lows, highs, strict=True)
    }


def describe_marks(marks: Marks, seed: int) -> dict[str, dict[str, float]]:
    """All metrics of one scorer. Coverage is of the lists that were made, no mean over users: it has no interval."""
    coverage = {"value": marks.coverage, "low": marks.coverage, "high": marks.coverage}
    return {**describe_values(marks.values, seed), f"coverage@{LIST_LENGTH}": coverage}


def describe_evaluation(marks: Marks, exam: Exam) -> Document:
    """What `evaluate --json` prints; the seed is that of negatives and intervals."""
    return {
        "protocol": exam.protocol.name,
        "seed": exam.seed,
        "users": len(exam.questions),
        "metrics": describe_marks(marks, exam.seed),
    }


def compare_models(marks: Mapping[str, Marks], seed: int) -> Document:
    """Who wins by NDCG@10, by how much over the second, and the 95 % interval of that lead over the same users."""
    ranking = sorted(marks, key=lambda name: float(marks[name].values[DECIDES].mean()), reverse=True)
    first, second = (marks[name].values[DECIDES] for name in ranking[:2])
    lead = describe_values({"lead": first - second}, seed)["lead"]
    return {"winner": ranking[0], "second": ranking[1], "metric": DECIDES, "lead": lead}


def format_metrics(models: Mapping[str, Mapping[str, Mapping[str, float]]], *, protocol: str, users: int) -> str:
    """A small table, a line a model."""
    width = max(10, *(len(model) + 2 for model in models))
    lines = head_table(protocol, users, width)
    for model, metrics in models.items():
        lines.append(format_row(model, metrics, width))
    return "\n".join(lines)


def format_strength(rules: Mapping[str, Any]) -> str:
    """One sentence about the rules beside a network."""
    tried = rules[DECIDES]
    return (
        f"Rules count {rules['strength']:g}: validation {DECIDES} {max(tried.values()):.4f}, "
        f"{tried['0']:.4f} without them."
    )


def head_table(protocol: str, users: int, width: int) -> list[str]:
    """What was measured, and the names of the columns; `width` is that of the first one."""
    return [
        f"{protocol}: {PROTOCOLS[protocol].summary}; {users} users, 95 % intervals",
        " " * width + "".join(f"{name:>28}" for name in SHOWN),
    ]


def format_row(name: str, metrics: Mapping[str, Mapping[str, float]], width: int, *, sign: str = "") -> str:
    """A line of that table, with `sign` "+" for differences."""
    return f"{name:<{width}}" + "".join(f"{format_interval(metrics[metric], sign):>28}" for metric in SHOWN)


def format_interval(metric: Mapping[str, float], sign: str = "") -> str:
    """A value and where it lies."""
    value, low, high = (f"{metric[key]:{sign}.4f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def format_verdict(comparison: Mapping[str, Any]) -> str:
    """One sentence that says who wins, and whether that could be chance."""
    lead = comparison["lead"]
    sure = "" if lead["low"] > 0 else ", which may be chance"
    return (
        f"{comparison['winner']} wins: its {comparison['metric']} is {format_interval(lead)} above that of "
        f"{comparison['second']} (95 % over the same users){sure}."
    )

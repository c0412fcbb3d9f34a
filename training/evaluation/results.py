"""Test metrics as JSON documents: a network and the baselines, with confidence intervals."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.evaluation.bootstrap import estimate_intervals
from training.evaluation.metrics import LIST_LENGTH, PRIMARY_METRIC
from training.evaluation.protocol import PROTOCOLS, EvaluationTask
from training.evaluation.ranking import Scores

SHOWN = ("HR@10", PRIMARY_METRIC, "MRR")
OVER_POPULARITY = "over_popularity"
"""The key of a model's lead over popularity, in results of a test that popularity was part of."""

Document = dict[str, Any]


def describe_values(values: Mapping[str, NDArray[np.float64]], seed: int) -> dict[str, dict[str, float]]:
    """Each metric's mean over users with its 95 % interval by bootstrap."""
    lows, highs = estimate_intervals(np.stack(list(values.values()), axis=1), seed)
    return {
        name: {"value": float(value.mean()), "low": float(low), "high": float(high)}
        for (name, value), low, high in zip(values.items(), lows, highs, strict=True)
    }


def describe_scores(scores: Scores, seed: int) -> dict[str, dict[str, float]]:
    """All metrics of one scorer. Coverage is of the lists that were made, no mean over users: it has no interval."""
    coverage = {"value": scores.coverage, "low": scores.coverage, "high": scores.coverage}
    return {**describe_values(scores.values, seed), f"coverage@{LIST_LENGTH}": coverage}


def describe_evaluation(scores: Scores, task: EvaluationTask) -> Document:
    """What `evaluate --json` prints; the seed is that of negatives and intervals."""
    return {
        "protocol": task.protocol.name,
        "seed": task.seed,
        "users": len(task.questions),
        "metrics": describe_scores(scores, task.seed),
    }


def compare_models(scores: Mapping[str, Scores], seed: int) -> Document:
    """The winner by NDCG@10, its lead over the second, and the 95 % interval of the lead over the same users."""
    ranking = sorted(scores, key=lambda name: float(scores[name].values[PRIMARY_METRIC].mean()), reverse=True)
    lead = measure_lead(scores[ranking[0]], scores[ranking[1]], seed)
    return {"winner": ranking[0], "second": ranking[1], "metric": PRIMARY_METRIC, "lead": lead}


def measure_lead(first: Scores, second: Scores, seed: int) -> dict[str, float]:
    """By how much the first one's NDCG@10 is above the second's, with its 95 % interval over the same users."""
    return describe_values({"lead": first.values[PRIMARY_METRIC] - second.values[PRIMARY_METRIC]}, seed)["lead"]


def format_metrics(models: Mapping[str, Mapping[str, Mapping[str, float]]], *, protocol: str, users: int) -> str:
    """A small table, a line a model."""
    width = max(10, *(len(model) + 2 for model in models))
    lines = head_table(protocol, users, width)
    for model, metrics in models.items():
        lines.append(format_row(model, metrics, width))
    return "\n".join(lines)


def format_rule_weight(rules: Mapping[str, Any]) -> str:
    """One sentence about the weight of the sequential rules."""
    tried = rules[PRIMARY_METRIC]
    return (
        f"Rule weight {rules['strength']:g}: validation {PRIMARY_METRIC} {max(tried.values()):.4f}, "
        f"{tried['0']:.4f} without rules."
    )


def head_table(protocol: str, users: int, width: int) -> list[str]:
    """The head of a table: protocol and column names. `width` is that of the first column."""
    return [
        f"{protocol}: {PROTOCOLS[protocol].summary}; {users} users, 95 % intervals",
        " " * width + "".join(f"{name:>28}" for name in SHOWN),
    ]


def format_row(name: str, metrics: Mapping[str, Mapping[str, float]], width: int, *, sign: str = "") -> str:
    """A line of that table, with `sign` "+" for differences."""
    return f"{name:<{width}}" + "".join(f"{format_interval(metrics[metric], sign):>28}" for metric in SHOWN)


def format_interval(metric: Mapping[str, float], sign: str = "") -> str:
    """A value with its interval."""
    value, low, high = (f"{metric[key]:{sign}.4f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def format_verdict(comparison: Mapping[str, Any]) -> str:
    """One sentence that names the winner, if there is one: a difference that chance can explain is no win."""
    winner, second, metric, lead = (comparison[key] for key in ("winner", "second", "metric", "lead"))
    if lead["low"] > 0:
        return (
            f"{winner} wins: its {metric} is {format_interval(lead)} above that of {second} (95 % over the same users)."
        )
    if lead["low"] == lead["high"] == 0:
        return f"No winner: {winner} and {second} have the same {metric}."
    return (
        f"No winner: the {metric} of {winner} is {format_interval(lead)} above that of {second} "
        "(95 % over the same users), which chance can explain."
    )


def find_weakness(results: Mapping[str, Any]) -> str | None:
    """A sentence when finished results say that the model does not beat popularity beyond chance, else None."""
    lead = results.get(OVER_POPULARITY)
    if lead is None or lead["low"] > 0:
        return None
    lead_text = format_interval(lead, "+")
    return (
        f"the model does not beat popularity beyond chance: its {PRIMARY_METRIC} is {lead_text} relative to the "
        "most popular items (95 % over the same users)"
    )

"""Test metrics as documents: a network beside the baselines, with what chance alone could explain."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.metrics import half_width_95
from training.split import PROTOCOL

SHOWN = ("HR@10", "NDCG@10", "MRR")
DECIDES = "NDCG@10"


def describe_metrics(values: Mapping[str, NDArray[np.float64]]) -> dict[str, dict[str, float]]:
    """Each metric's mean over users and half the width of its 95 % interval."""
    return {
        name: {"value": float(value.mean()), "half_width_95": half_width_95(value)} for name, value in values.items()
    }


def describe_evaluation(values: Mapping[str, NDArray[np.float64]], *, seed: int | None) -> dict[str, Any]:
    """What `evaluate --json` prints; the seed is null for a baseline, which draws nothing."""
    return {"protocol": PROTOCOL, "seed": seed, "users": len(values[DECIDES]), "metrics": describe_metrics(values)}


def compare_models(values: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> dict[str, Any]:
    """Who wins by NDCG@10, by how much over the second, and the 95 % interval of that lead over the same users."""
    ranking = sorted(values, key=lambda name: float(values[name][DECIDES].mean()), reverse=True)
    lead = values[ranking[0]][DECIDES] - values[ranking[1]][DECIDES]
    return {
        "winner": ranking[0],
        "second": ranking[1],
        "metric": DECIDES,
        "lead": float(lead.mean()),
        "half_width_95": half_width_95(lead),
    }


def format_metrics(models: Mapping[str, Mapping[str, Mapping[str, float]]], *, users: int) -> str:
    """A small table, a line a model."""
    lines = [f"{PROTOCOL}; {users} users", f"{'':<10}" + "".join(f"{name:>18}" for name in SHOWN)]
    for model, metrics in models.items():
        cells = [f"{metrics[name]['value']:.4f} ± {metrics[name]['half_width_95']:.4f}" for name in SHOWN]
        lines.append(f"{model:<10}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


def format_verdict(comparison: Mapping[str, Any]) -> str:
    """One sentence that says who wins, and whether that could be chance."""
    lead, half = comparison["lead"], comparison["half_width_95"]
    sure = "" if lead > half else ", which may be chance"
    return (
        f"{comparison['winner']} wins: its {comparison['metric']} is {lead:.4f} ± {half:.4f} above that of "
        f"{comparison['second']} (95 % over the same users){sure}."
    )

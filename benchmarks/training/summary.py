"""Turns -> paces and ratios, as a document and as text.

A ratio compares a peer's turn with the turn of ours right before it, since the machine's pace drifts.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.training.rounds import OURS

Turn = Mapping[str, Any]

MEASURES = {
    "tokens_per_cpu_second": "real tokens in a CPU second",
    "tokens_per_second": "real tokens in a second",
    "epochs_per_cpu_hour": "epochs in a CPU hour",
}
"""What more of is better, by name."""


def measure(turn: Turn) -> dict[str, float]:
    """The paces of one turn. An epoch is one pass over the log, many times more tokens in prefixes."""
    cpu = turn["tokens"] / turn["cpu_seconds"]
    return {
        "tokens_per_cpu_second": cpu,
        "tokens_per_second": turn["tokens"] / turn["seconds"],
        "epochs_per_cpu_hour": 3600 * cpu / turn["epoch_tokens"],
    }


def summarize(turns: Sequence[Turn]) -> dict[str, Any]:
    """Median, least and most of every pace of each system, and of ours over each peer's."""
    measured: dict[str, list[dict[str, float]]] = {}
    ratios: dict[str, list[dict[str, float]]] = {}
    ours: dict[str, float] | None = None
    for turn in turns:
        name, paces = turn["contestant"], measure(turn)
        measured.setdefault(name, []).append(paces)
        if name == OURS:
            ours = paces
        elif ours:
            ratios.setdefault(name, []).append({key: ours[key] / paces[key] for key in MEASURES})
    return {
        "paces": {name: _spread_all(found) for name, found in measured.items()},
        "ratios": {name: _spread_all(found) for name, found in ratios.items()},
    }


def _spread_all(found: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {key: _spread(each[key] for each in found) for key in MEASURES}


def _spread(values: Iterable[float]) -> dict[str, float]:
    values = list(values)
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "turns": len(values)}


def format_summary(summary: Mapping[str, Any]) -> str:
    """A table a measure: median (least to most)."""
    lines = []
    for key, words in MEASURES.items():
        lines.append(f"{words:<44}{'ours is quicker by':>28}")
        for name, paces in summary["paces"].items():
            ratio = summary["ratios"].get(name)
            times = _format_spread(ratio[key], ".1f") if ratio else ""
            lines.append(f"  {name:<12}{_format_spread(paces[key], ',.0f' if key[0] == 't' else '.2f'):>30}{times:>28}")
    return "\n".join(lines) + "\n"


def _format_spread(spread: Mapping[str, float], form: str) -> str:
    return f"{spread['median']:{form}} ({spread['least']:{form}} to {spread['most']:{form}})"

"""The pace of every turn, as a PNG."""

import io
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.training.rounds import OURS, PEERS
from benchmarks.training.summary import MEASURES, measure


def draw_paces(document: Mapping[str, Any]) -> bytes:
    """Left every turn's real tokens in a CPU second, right how many times quicker ours was; bars are medians."""
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    key = "tokens_per_cpu_second"
    summary = document["summary"]
    turns: dict[str, list[float]] = {}
    for turn in document["turns"]:
        turns.setdefault(turn["contestant"], []).append(measure(turn)[key])
    _draw_bars(left, {name: paces[key]["median"] for name, paces in summary["paces"].items()}, ",.0f")
    for row, paces in enumerate(turns.values()):
        left.plot(paces, [row] * len(paces), "k.", markersize=5)
    left.set(title=MEASURES[key], xlabel="more is better")
    _draw_bars(right, {name: ratios[key]["median"] for name, ratios in summary["ratios"].items()}, ".1f")
    for row, ratios in enumerate(summary["ratios"].values()):
        right.plot([ratios[key]["least"], ratios[key]["most"]], [row, row], "k|-", markersize=8)
    right.set(title="ours over theirs", xlabel="times")
    return _save(figure)


def _draw_bars(axes: Axes, values: Mapping[str, float], form: str) -> None:
    colours = [f"C{[OURS, *PEERS].index(name)}" for name in values]
    names = [f"{name}\n{value:{form}}" for name, value in values.items()]
    axes.barh(names, list(values.values()), color=colours, alpha=0.6)
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")


def _save(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()

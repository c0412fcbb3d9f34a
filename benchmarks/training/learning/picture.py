"""NDCG@10 over CPU seconds, as a PNG."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from benchmarks.training.learning.crossings import list_points
from benchmarks.training.learning.plan import NETWORKS
from benchmarks.training.learning.table import name_curve
from benchmarks.training.rounds import OURS, PEERS
from training.evaluation.metrics import PRIMARY_METRIC
from training.plots.style import begin_picture, style_line, tidy, to_png

_DASHES = dict(zip(NETWORKS, ("-", "--"), strict=True))


def draw_learning(document: Mapping[str, Any]) -> bytes:
    """Left the validation, right the test with the published rows, a colour a system and a dash a network."""
    figure = begin_picture(11, 4.4)
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, asked in ((left, "validation"), (right, "test")):
        _draw_curves(axes, document, asked)
    left.set(title="Validation", ylabel=f"{PRIMARY_METRIC}, all items ranked, seen ones removed")
    right.set(title="Test, and published rows")
    for place, row in enumerate(document["published"]):
        right.axhline(row["height"], color="0.6", linewidth=0.8, linestyle=":")
        side = {"x": 0.01, "ha": "left"} if place % 2 else {"x": 0.35, "ha": "left"}
        right.text(y=row["height"], s=f"{row['model']} {row['height']:.4f}", fontsize=6, color="0.35", va="bottom",
                   transform=right.get_yaxis_transform(), **side)  # fmt: skip
    left.set_ylim(bottom=0)
    handles, labels = left.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return to_png(figure)


def _draw_curves(axes: Axes, document: Mapping[str, Any], asked: str) -> None:
    for curve in document["curves"]:
        points = list_points(curve, asked)
        style = style_line([OURS, *PEERS].index(curve["system"]), len(points))
        dash = _DASHES[curve["network"]]
        axes.plot([x for x, _ in points], [y for _, y in points], label=name_curve(curve), linestyle=dash, **style)
    axes.set_xscale("log")
    marks = sorted({mark for curve in document["curves"] for mark in curve["terms"]["marks"]})
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("CPU seconds, preparation and training")
    tidy(axes)

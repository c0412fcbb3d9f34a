"""comparison.png: how runs learned, where they ended, and how far they are apart."""

import io
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from training.results import DECIDES, SHOWN

_LONG = 60


def draw_comparison(document: Mapping[str, Any]) -> bytes:
    """A PNG of what `compare` found."""
    names = list(document["models"])
    figure = Figure(figsize=(15, 3.4 + 0.32 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    colours = {name: f"C{place % 10}" for place, name in enumerate(names)}
    *left, middle, right = figure.subplots(1, 3 if document["epochs"] else 2)
    for axes in left:  # baselines alone have not learned step by step
        _draw_epochs(axes, document["epochs"], colours)
    _draw_intervals(middle, document["models"], colours)
    middle.set_title(f"Test, {document['protocol']}, {document['users']:,} users")
    _draw_intervals(right, document["differences"], colours)
    right.axvline(0, color="black", linewidth=1)
    right.set_title(f"Above {_shorten(document['against'])}, same users")
    handles = [Line2D([], [], marker="o", color=colour, label=_shorten(name)) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(names)))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _draw_epochs(axes: Axes, epochs: Mapping[str, list[dict[str, Any]]], colours: Mapping[str, str]) -> None:
    for name, lines in epochs.items():
        minutes = [seconds / 60 for seconds in accumulate(line["seconds"] for line in lines)]
        marker = "o" if len(lines) < _LONG else None
        heights = [line["validation"][DECIDES] for line in lines]
        axes.plot(minutes, heights, marker=marker, markersize=3, color=colours[name])
    axes.set(title=f"Validation {DECIDES}", xlabel="minutes of training")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)


def _draw_intervals(
    axes: Axes, models: Mapping[str, Mapping[str, Mapping[str, float]]], colours: Mapping[str, str]
) -> None:
    """A line a metric and model, the first on top; an interval need not lie evenly around its value."""
    step = 0.8 / max(1, len(models))
    for place, (name, metrics) in enumerate(models.items()):
        for row, metric in enumerate(SHOWN):
            found = metrics[metric]
            reach = [[found["value"] - found["low"]], [found["high"] - found["value"]]]
            height = row + (place - (len(models) - 1) / 2) * step
            axes.errorbar(found["value"], height, xerr=reach, fmt="o", capsize=3, color=colours[name])
    axes.set_yticks(range(len(SHOWN)), SHOWN)
    axes.set_ylim(len(SHOWN) - 0.5, -0.5)
    axes.set_xlabel("95 % intervals")
    axes.grid(alpha=0.3, axis="x")


def _shorten(name: str) -> str:
    return name if len(name) <= _LONG else f"...{name[-_LONG:]}"

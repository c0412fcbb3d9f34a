"""comparison.png: how runs learned, where they ended, and how far they are apart."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import PurePath
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from training.evaluation.metrics import PRIMARY_METRIC
from training.evaluation.results import SHOWN
from training.plots.style import begin_picture, style_line, tidy, to_png

_LONGEST = 32


def draw_comparison(document: Mapping[str, Any]) -> bytes:
    """Draw the document of `compare` as a PNG: validation over time, test metrics, paired differences."""
    names = list(document["models"])
    shown = dict(zip(names, shorten_names(names), strict=True))
    places = {name: place for place, name in enumerate(names)}
    figure = begin_picture(14, 3.4 + 0.35 * len(names))
    *left, middle, right = figure.subplots(1, 3 if document["epochs"] else 2)
    for axes in left:  # baselines alone have not learned step by step
        _draw_epochs(axes, document["epochs"], places)
    _draw_intervals(middle, document["models"], places)
    middle.set_title(f"Test: {document['protocol']}, {document['users']:,} users")
    middle.set_xlim(left=0)
    _draw_intervals(right, document["differences"], places)
    right.axvline(0, color="black", linewidth=1)
    right.set_title(f"Difference to {shown[document['against']]}, same users")
    handles = [Line2D([], [], label=shown[name], **style_line(place, 1)) for name, place in places.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(names)), frameon=False)
    return to_png(figure)


def shorten_names(names: Sequence[str]) -> list[str]:
    """Labels for paths: as few last parts as keep all labels distinct, long ones cut at the front."""
    parts = [PurePath(name).parts or (name,) for name in names]
    tails = names
    for depth in range(1, max(map(len, parts)) + 1):
        tails = ["/".join(part[-depth:]) for part in parts]
        if len(set(tails)) == len(names):
            break
    return [tail if len(tail) <= _LONGEST else f"…{tail[1 - _LONGEST :]}" for tail in tails]


def _draw_epochs(axes: Axes, epochs: Mapping[str, list[dict[str, Any]]], places: Mapping[str, int]) -> None:
    for name, lines in epochs.items():
        minutes = [seconds / 60 for seconds in accumulate(line["seconds"] for line in lines)]
        heights = [line["validation"][PRIMARY_METRIC] for line in lines]
        axes.plot(minutes, heights, **style_line(places[name], len(lines)))
    axes.set(title="Validation", xlabel="minutes of training", ylabel=PRIMARY_METRIC)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    tidy(axes)


def _draw_intervals(
    axes: Axes, models: Mapping[str, Mapping[str, Mapping[str, float]]], places: Mapping[str, int]
) -> None:
    """Draw a row for each metric and model, the first on top. Intervals may be asymmetric."""
    step = 0.7 / max(1, len(models))
    for row, metric in enumerate(SHOWN):
        for order, (name, metrics) in enumerate(models.items()):
            found = metrics[metric]
            reach = [[found["value"] - found["low"]], [found["high"] - found["value"]]]
            height = row + (order - (len(models) - 1) / 2) * step
            axes.errorbar(found["value"], height, xerr=reach, capsize=3, **style_line(places[name], 1))
        if row:
            axes.axhline(row - 0.5, color="0.8", linewidth=0.8)
    axes.set_yticks(range(len(SHOWN)), SHOWN)
    axes.set_ylim(len(SHOWN) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel("mean over users, 95 % interval")
    tidy(axes)
    axes.grid(visible=False, axis="y")

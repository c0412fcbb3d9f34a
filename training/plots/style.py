"""What the trainer's pictures share: a canvas without a window, colours and marks that part for every eye, a PNG."""

import io
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe & Ito 2008: told apart with any kind of colour blindness."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""One more than there are colours, so that a colour comes back with another mark."""
_MOST_MARKED = 60


def begin_picture(width: float, height: float) -> Figure:
    """An empty figure of so many inches that leaves room for all its labels."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(*plots: Axes) -> None:
    """A light grid behind the data, and no frame where nothing is read off."""
    for axes in plots:
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)


def style_line(place: int, points: int) -> dict[str, Any]:
    """How the `place`-th of several lines looks; long ones have no marks."""
    style: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "markersize": 4}
    return style if points > _MOST_MARKED else {**style, "marker": MARKERS[place % len(MARKERS)]}


def to_png(figure: Figure) -> bytes:
    """The picture, sharp on screens of today."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()

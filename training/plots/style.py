"""The shared plot style: figures without a window, colour-blind-safe colours with markers, PNG output."""

import io
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe & Ito 2008: distinct with any kind of colour blindness."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""One more than there are colours, so that a repeated colour has another marker."""
_MOST_MARKED = 60


def begin_picture(width: float, height: float) -> Figure:
    """An empty figure, sized in inches, whose layout leaves room for all labels."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(*plots: Axes) -> None:
    """Put a light grid behind the data and remove the frame's top and right."""
    for axes in plots:
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)


def style_line(place: int, points: int) -> dict[str, Any]:
    """Plot options of line number `place`, from 0. Lines of many points have no markers."""
    style: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "markersize": 4}
    return style if points > _MOST_MARKED else {**style, "marker": MARKERS[place % len(MARKERS)]}


def to_png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()

"""Latency against offered load, a panel for each case and kind of histories, as a PNG."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from benchmarks.harness.cases import Case
from training.plots.style import begin_picture, style_line, tidy, to_png


def draw_latencies(document: Mapping[str, Any]) -> bytes:
    """p50 as lines, p99 dotted above them, over the rate that was offered; medians over the rounds."""
    measured = [entry for entry in document["cases"] if _list_points(entry)]
    columns = min(2, max(1, len(measured)))
    rows = -(-len(measured) // columns) or 1
    figure = begin_picture(5.0 * columns, 3.6 * rows)
    for place, entry in enumerate(measured):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw_case(axes, _list_points(entry))
        axes.set(title=f"{Case(**entry['case'])}\n{entry['histories']} windows", xlabel="offered, requests a second")
        axes.set(xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))  # powers of ten with factors run into each other
            axis.set_minor_formatter(NullFormatter())
        tidy(axes)
        if place % columns == 0:
            axes.set_ylabel("ms since a request was due\n(lines: p50, dotted: p99)")
        axes.legend(fontsize="small")
    return to_png(figure)


def _draw_case(axes: Axes, points: Mapping[str, list[tuple[float, float, float]]]) -> None:
    for place, (name, found) in enumerate(points.items()):
        offered, p50, p99 = zip(*sorted(found), strict=True)
        style = style_line(place, len(found))
        axes.plot(offered, p50, label=name, **style)
        axes.plot(offered, p99, linestyle=":", **style)


def _list_points(entry: Mapping[str, Any]) -> dict[str, list[tuple[float, float, float]]]:
    """Of each system: what was offered, p50 and p99."""
    points: dict[str, list[tuple[float, float, float]]] = {}
    for row in entry.get("summary", {}).get("rows", ()):
        if "offered" in row and "p50_ms" in row:
            point = (row["offered"], row["p50_ms"]["median"], row["p99_ms"]["median"])
            points.setdefault(row["contestant"], []).append(point)
    return points

"""Panels drawn by matplotlib, from their JSON and the series of their queries: near enough to judge the data."""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator, MultipleLocator
from matplotlib.transforms import Bbox

from deploy.grafana.prometheus import Series
from deploy.grafana.units import write_value

INK, FAINT = "#23272e", "#8a8f98"
_PALETTE: Final = ("#5aa469", "#e0b400", "#4c8bc9", "#e8833a", "#9b72c0", "#d44a4a", "#3fa7a0", "#8a8f98")
_TICKS_S: Final = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000)
_TICK_POINTS: Final = 55
LEGEND_INCHES, TICKS_INCHES = 0.5, 0.22
"""From a graph down to the foot of its legend, and what its own times need of that."""

Named = tuple[str, Series]
Span = tuple[float, float]


def draw_stat(axes: Axes, panel: Mapping[str, Any], series: Sequence[Named], _span: Span) -> None:
    """The last value, large: a word on a colour where there are mappings, else above its own line."""
    axes.set_axis_off()
    defaults = panel["fieldConfig"]["defaults"]
    values = series[0][1].values if series else []
    text, colour = (write_value(values[-1], defaults["unit"]), INK) if values and "unit" in defaults else ("", FAINT)
    if not values:
        text = defaults["noValue"]
    elif "mappings" in defaults:
        word = defaults["mappings"][0]["options"][f"{values[-1]:.0f}"]
        axes.set_facecolor(word["color"])
        axes.patch.set_visible(True)
        axes.set_axis_on()
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        text, colour = word["text"], "white"
    else:
        steps = defaults["thresholds"]["steps"]
        colour = [step["color"] for step in steps if step["value"] is None or values[-1] >= step["value"]][-1]
        axes.fill_between(series[0][1].times, values, color=colour, alpha=0.2, linewidth=0)
        axes.set_ylim(0, 3 * max(*values, 1e-12))
        axes.margins(x=0)
    axes.text(0.5, 0.55, text, transform=axes.transAxes, ha="center", va="center", size=17, weight="bold", color=colour)


def draw_graph(axes: Axes, panel: Mapping[str, Any], series: Sequence[Named], span: Span) -> None:
    """Lines or areas on top of each other over time, with the limit where there is one."""
    defaults = panel["fieldConfig"]["defaults"]
    overrides = {rule["matcher"]["options"]: rule["properties"] for rule in panel["fieldConfig"]["overrides"]}
    stacked = "stacking" in defaults["custom"]
    lines, colours = [], {}
    for place, (name, one) in enumerate(series):
        properties = overrides.get(name, [])
        colours[name] = (_find(properties, "color") or {"fixedColor": _PALETTE[place % len(_PALETTE)]})["fixedColor"]
        if not stacked or _find(properties, "custom.stacking"):  # the only override of it takes a line off the stack
            lines.append((name, one))
    areas = [pair for pair in series if pair not in lines]
    if areas:
        times = sorted({time_s for _, one in areas for time_s in one.times})
        heights = [np.interp(times, one.times, one.values, left=0, right=0) for _, one in areas if one.times]
        names = [name for name, one in areas if one.times]
        axes.stackplot(times, heights, colors=[colours[name] for name in names], labels=names, alpha=0.75)
    for name, one in lines:
        axes.plot(one.times, one.values, color=colours[name], label=name, linewidth=1.8 if areas else 1.2)
    top = max(axes.get_ylim()[1], 1e-9)
    if "thresholdsStyle" in defaults["custom"]:
        limit = defaults["thresholds"]["steps"][-1]["value"]
        axes.axhline(limit, color="#d44a4a", linestyle=(0, (4, 4)), linewidth=0.8)
        top = max(top, limit * 1.1) if limit < 6 * top else top  # one far away must not flatten the lines
    low = 0.0 if "min" in defaults else min(0.0, axes.dataLim.y0)
    axes.set_ylim(low * 1.05, top * 1.05)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: write_value(value, defaults["unit"])))
    axes.yaxis.set_major_locator(_choose_ticks(defaults["unit"], top))
    _finish_time_axis(axes, span)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    if series:
        _write_legend(axes, dict(series), defaults["unit"])
    else:
        axes.text(0.5, 0.5, defaults["noValue"], transform=axes.transAxes, ha="center", color=FAINT, size=9)


def _write_legend(axes: Axes, series: Mapping[str, Series], unit: str) -> None:
    """What each line is, its last value and its highest, at the foot of the card; the graph gives way to it."""
    place, dots = axes.get_position(), axes.figure.bbox
    foot = place.y0 - LEGEND_INCHES * axes.figure.dpi / dots.height
    handles, names = axes.get_legend_handles_labels()
    texts = [
        f"{name}  {write_value(values[-1], unit)}, at most {write_value(max(values), unit)}" if values else name
        for name, values in ((name, series[name].values) for name in names)
    ]
    for columns in range(min(len(texts), 4), 0, -1):
        legend = axes.legend(handles, texts, loc="lower left", bbox_to_anchor=(place.x0 - 0.008, foot),
                             bbox_transform=axes.figure.transFigure, ncols=columns, borderaxespad=0, borderpad=0.2,
                             fontsize=7, frameon=False, handlelength=1, columnspacing=1.2, labelspacing=0.3,
                             labelcolor=INK)  # fmt: skip
        height = legend.get_window_extent().height
        if legend.get_window_extent().width <= axes.bbox.width * 1.05:
            break
    bottom = max(place.y0, foot + (height + TICKS_INCHES * axes.figure.dpi) / dots.height)
    axes.set_position((place.x0, bottom, place.width, place.y1 - bottom))


def draw_states(axes: Axes, panel: Mapping[str, Any], series: Sequence[Named], span: Span) -> None:
    """One bar for each series, coloured by state; none where the series has no value."""
    words = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    gaps_s = [end_s - start_s for _, one in series for start_s, end_s in itertools.pairwise(one.times)]
    step_s = min(gaps_s, default=span[1] - span[0])
    for row, (_, one) in enumerate(series):
        edges = [*one.times, span[1]]
        for start_s, end_s, value in zip(edges, edges[1:], one.values, strict=False):
            colour = words[f"{value:.0f}"]["color"]
            axes.barh(row, min(step_s, end_s - start_s), left=start_s, height=0.6, color=colour)
    axes.set_yticks(range(len(series)), [name for name, _ in series])
    axes.set_ylim(len(series) - 0.4, -0.6)
    _finish_time_axis(axes, span)


def draw_table(axes: Axes, panel: Mapping[str, Any], series: Sequence[Named], _span: Span) -> None:
    """The labels that the panel keeps, and the value."""
    axes.set_axis_off()
    *labels, _ = panel["transformations"][0]["options"]["include"]["names"]
    [override] = panel["fieldConfig"]["overrides"]
    unit = _find(override["properties"], "unit")
    rows = [
        [*(one.labels.get(label, "") for label in labels), write_value(one.values[-1], unit)]
        for _, one in series
        if one.values
    ]
    columns = [*labels, override["matcher"]["options"]]
    if not rows:
        axes.text(0.5, 0.5, panel["fieldConfig"]["defaults"]["noValue"], ha="center", color=FAINT, size=9)
    else:
        widths = np.array([max(len(row[place]) for row in [columns, *rows]) + 3 for place in range(len(columns))])
        height = min(0.28 * (len(rows) + 1), 1)
        table = axes.table(
            rows,
            colLabels=columns,
            cellLoc="left",
            colWidths=list(widths),
            bbox=Bbox.from_bounds(0, 1 - height, 1, height),
        )
        table.auto_set_font_size(False)
        table.set_fontsize(8)
        for (row, _), cell in table.get_celld().items():
            cell.set_edgecolor("#e6e8eb")
            cell.get_text().set_color(FAINT if row == 0 else INK)


DRAW: Final[Mapping[str, Callable[[Axes, Mapping[str, Any], Sequence[Named], Span], None]]] = {
    "stat": draw_stat,
    "timeseries": draw_graph,
    "state-timeline": draw_states,
    "table": draw_table,
}


def _find(properties: Sequence[Mapping[str, Any]], name: str) -> Any:  # noqa: ANN401 - as open as Grafana's own type
    """The value of a field that an override sets, or None."""
    return next((entry["value"] for entry in properties if entry["id"] == name), None)


def _choose_ticks(unit: str, top: float) -> Locator:
    """Round numbers as people count: bytes by two, long times by the clock, all else by ten."""
    if unit == "bytes":
        return MultipleLocator(2 ** math.ceil(math.log2(top / 5)))
    if unit == "s" and top > 2 * _TICKS_S[0]:
        return MultipleLocator(next((step_s for step_s in _TICKS_S if top / step_s <= 5), _TICKS_S[-1]))
    return MaxNLocator(5, steps=[1, 2, 5, 10])


def _finish_time_axis(axes: Axes, span: Span) -> None:
    start_s, end_s = span
    room = axes.bbox.width / _TICK_POINTS
    step_s = next((step_s for step_s in _TICKS_S if (end_s - start_s) / step_s <= room), _TICKS_S[-1])
    axes.xaxis.set_major_locator(MultipleLocator(step_s))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda time_s, _: time.strftime("%H:%M", time.gmtime(time_s))))
    axes.set_xlim(start_s, end_s)
    axes.tick_params(labelsize=7, colors=FAINT, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)

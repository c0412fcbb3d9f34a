"""benchmark.png: every model's NDCG@10 with its interval, a panel for each log and protocol."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from training.benchmark.cells import TRANSFORMERS, Document, group_cells
from training.benchmark.table import average_seeds
from training.evaluation.metrics import PRIMARY_METRIC
from training.plots.style import begin_picture, style_line, tidy, to_png

_KINDS = (*TRANSFORMERS, "sequence", "counter", "user")


def draw_benchmark(cells: Sequence[Document]) -> bytes:
    """A PNG of all cells, seeds averaged."""
    groups = {key: average_seeds(group) for key, group in group_cells(cells).items()}
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    tallest = max(len(models) for models in groups.values())
    figure = begin_picture(6.5 * columns, rows * (1.2 + 0.28 * tallest) + 0.4)
    panels = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axes, ((data, protocol), models) in zip(panels, groups.items(), strict=False):
        _draw_panel(axes, models)
        axes.set_title(f"{data}, {protocol}")
    for axes in panels[len(groups) :]:
        axes.set_axis_off()
    handles = [Line2D([], [], label=kind, linestyle="", **style_line(place, 1)) for place, kind in enumerate(_KINDS)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(_KINDS), frameon=False)
    return to_png(figure)


def _draw_panel(axes: Axes, models: Sequence[Document]) -> None:
    for place, row in enumerate(models):
        found = row["metrics"][PRIMARY_METRIC]
        reach = [[found["value"] - found["low"]], [found["high"] - found["value"]]]
        axes.errorbar(found["value"], place, xerr=reach, capsize=3, **style_line(_KINDS.index(row["kind"]), 1))
    axes.set_yticks(range(len(models)), [row["model"] for row in models])
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{PRIMARY_METRIC}, mean over users, 95 % interval")
    tidy(axes)
    axes.grid(visible=False, axis="y")

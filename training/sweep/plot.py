"""sweep.png: how trials learned, and what each value of each key came to."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from training.evaluation.metrics import PRIMARY_METRIC
from training.evaluation.results import SHOWN
from training.plots.style import COLOURS, begin_picture, style_line, tidy, to_png
from training.sweep.best import find_best
from training.sweep.plan import Plan
from training.sweep.space import Parameter, Range, Values, show_value
from training.sweep.study import Trial

_SEED = "train.seed"
_COLUMNS = 3
_FINISHED: dict[str, Any] = {"linestyle": "", "marker": "o", "color": COLOURS[0], "markersize": 6}
_PRUNED: dict[str, Any] = {"linestyle": "", "marker": "o", "color": "0.6", "markerfacecolor": "none", "markersize": 5}
_OWN: dict[str, Any] = {"linestyle": "", "marker": "s", "color": COLOURS[2], "markersize": 7}
_BEST: dict[str, Any] = {"linestyle": "", "marker": "*", "color": COLOURS[1], "markersize": 13}
_LOOKS = {"finished": _FINISHED, "pruned, its best epoch": _PRUNED, "the recipe as it is": _OWN, "best": _BEST}


def draw_sweep(plan: Plan, trials: Sequence[Trial], own: Trial | None) -> bytes:
    """Draw trials as a PNG. `own` is the one with the recipe's own values.

    A grid of one key is drawn as the papers draw it: every metric by value. Several trials of a value are then seeds.
    """
    varied = [parameter for parameter in plan.space if parameter.key != _SEED] or list(plan.space)
    drawers: list[Callable[[Axes], None]] = []
    if any(len(trial.validation) > 1 for trial in trials):
        drawers.append(lambda axes: _draw_epochs(axes, trials))
    single = plan.grid and len(varied) == 1 and not isinstance(varied[0], Range)
    drawers += [
        _draw_metrics(parameter, trials) if single else _draw_values(parameter, trials, own) for parameter in varied
    ]
    columns = 2 if len(drawers) == 4 else min(_COLUMNS, len(drawers))
    rows = -(-len(drawers) // columns)
    tallest = max([0, *(len(parameter.values) for parameter in varied if _is_named(parameter))])
    figure = begin_picture(5.2 * columns, rows * max(4.0, 1.2 + 0.3 * tallest) + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axes, draw in zip(panels, drawers, strict=False):
        draw(axes)
        tidy(axes)
    for axes in panels[len(drawers) :]:
        axes.set_axis_off()
    figure.suptitle(f"Sweep of {plan.name} on {plan.data.name}: validation, {len(trials)} trials")
    if not single:
        handles = [Line2D([], [], label=label, **look) for label, look in _LOOKS.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return to_png(figure)


def _draw_epochs(axes: Axes, trials: Sequence[Trial]) -> None:
    best = find_best(trials)
    for trial in sorted(trials, key=lambda trial: (trial is best, trial.state == "finished")):
        finished = trial.state == "finished"
        colour = COLOURS[1] if trial is best else COLOURS[0] if finished else "0.6"
        axes.plot(
            list(trial.validation),
            list(trial.validation.values()),
            color=colour,
            linestyle="-" if finished else "--",
            linewidth=2.5 if trial is best else 1,
            marker="o",
            markersize=3,
        )
    axes.set(title="By epoch (dashed: pruned or stopped)", xlabel="epoch", ylabel=PRIMARY_METRIC)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_values(parameter: Parameter, trials: Sequence[Trial], own: Trial | None) -> Callable[[Axes], None]:
    """Every trial by its value of one key."""
    best = find_best(trials)

    def draw(axes: Axes) -> None:
        for trial in trials:
            height = _measure(trial)
            if height is None:
                continue
            looks: list[dict[str, Any]] = [_PRUNED if trial.value is None else _FINISHED]
            looks += [_OWN] * (trial is own) + [_BEST] * (trial is best)
            for look in looks:
                axes.plot([_place(parameter, trial)], [height], **look)
        axes.set(title=parameter.key, ylabel=PRIMARY_METRIC)
        if not isinstance(parameter, Range):
            labels = [show_value(value) for value in parameter.values]
            axes.set_xticks(range(len(labels)), labels, rotation=90 if _is_named(parameter) else 0)
            axes.set_xlim(-0.5, len(labels) - 0.5)
        elif parameter.logarithmic:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())

    return draw


def _draw_metrics(parameter: Parameter, trials: Sequence[Trial]) -> Callable[[Axes], None]:
    """Every metric by the values of the one key of a grid: the mean over seeds, and each seed."""
    found = [trial for trial in trials if "metrics" in trial.details]
    places = np.array([_place(parameter, trial) for trial in found])
    labels = [show_value(value) for value in parameter.values]
    flat = not _is_named(parameter)

    def draw(axes: Axes) -> None:
        for order, name in enumerate(SHOWN):
            heights = np.array([trial.details["metrics"][name] for trial in found])
            tried = [place for place in range(len(labels)) if (places == place).any()]
            means = [heights[places == place].mean() for place in tried]
            look = style_line(order, len(labels))
            points = {**look, "linestyle": "", "markersize": 3, "alpha": 0.6}
            if flat:
                axes.plot(tried, means, label=name, **look)
                axes.plot(places, heights, **points)
            else:
                axes.plot(means, tried, label=name, **look, linestyle="")
                axes.plot(heights, places, **points)
                if tried and tried[0] == 0:
                    axes.axvline(means[0], color=look["color"], linestyle=":", linewidth=1)
        if flat:
            axes.set_xticks(range(len(labels)), labels)
            axes.set(xlabel=parameter.key, ylabel="mean over users")
        else:
            axes.set_yticks(range(len(labels)), labels)
            axes.set_ylim(len(labels) - 0.5, -0.5)
            axes.set_xlabel("mean over users; dotted: the first row's")
        axes.set_title(f"Validation by {parameter.key}")
        axes.legend(frameon=False)

    return draw


def _is_named(parameter: Parameter) -> bool:
    """Whether values are names, which want room."""
    if isinstance(parameter, Values):
        return any(isinstance(value, str) for value in parameter.values)
    return not isinstance(parameter, Range)


def _place(parameter: Parameter, trial: Trial) -> float:
    value = trial.values[parameter.key]
    if isinstance(parameter, Range):
        assert isinstance(value, int | float)  # noqa: S101 - a range holds numbers
        return float(value)
    return float(parameter.values.index(value))


def _measure(trial: Trial) -> float | None:
    if trial.value is not None:
        return trial.value
    return max(trial.validation.values(), default=None)

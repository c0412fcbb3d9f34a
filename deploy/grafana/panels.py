"""The few kinds of panels that the dashboard is made of, and the house's defaults: axes from 0, one data source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import FieldColor, ThresholdsConfig
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from deploy.grafana.expressions import Query

SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, YELLOW, ORANGE, RED, BLUE, PURPLE, GREY = (
    "#5aa469", "#e0b400", "#e8833a", "#d44a4a", "#4c8bc9", "#9b72c0", "#8a8f98",
)  # fmt: skip

QUANTILE_COLOURS: Final = {"p50": GREEN, "p95": YELLOW, "p99": RED}
YES_NO: Final = {1: ("yes", GREEN), 0: ("NO", RED)}
RUNBOOK: Final = "docs/runbook.md"

Panel = stat.Panel | timeseries.Panel | statetimeline.Panel | table.Panel


@dataclass(frozen=True, slots=True)
class Limits:
    """Green below `warn`, yellow from there, red from `alarm`; the other way round where `low_is_bad`."""

    warn: float
    alarm: float
    low_is_bad: bool = False

    def build(self) -> ThresholdsConfig:
        """Steps as Grafana has them: each colour from its value on."""
        steps = [(None, GREEN), (self.warn, YELLOW), (self.alarm, RED)]
        if self.low_is_bad:
            steps = [(None, RED), (self.alarm, YELLOW), (self.warn, GREEN)]
        return _thresholds(steps)


@dataclass(frozen=True, slots=True)
class Look:
    """How a graph's lines are drawn: colours by name, areas on top of each other, one line that is their total."""

    colours: Mapping[str, str] = field(default_factory=dict)
    stacked: bool = False
    total: str | None = None
    limit: float | None = None
    """Drawn as a dashed line: where the alert begins."""
    signed: bool = False
    """Whether values may lie below 0; else the axis begins there."""


def show_number(
    title: str,
    about: str,
    runbook: str,
    expr: str,
    *,
    unit: str,
    limits: Limits | None = None,
    decimals: int | None = None,
) -> Panel:
    """One number, large, with its last minutes behind it."""
    panel = stat.Panel().color_mode(common.BigValueColorMode.VALUE).graph_mode(common.BigValueGraphMode.AREA)
    panel = panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"])).unit(unit).min(0)
    panel = panel.no_value("no traffic").thresholds(limits.build() if limits else _thresholds([(None, BLUE)]))
    if decimals is not None:
        panel = panel.decimals(decimals)
    return _finish(panel, title, about, runbook, [Query("", expr)])


def show_word(title: str, about: str, runbook: str, expr: str, words: Mapping[int, tuple[str, str]]) -> Panel:
    """One number as a word with a colour."""
    panel = stat.Panel().color_mode(common.BigValueColorMode.BACKGROUND).graph_mode(common.BigValueGraphMode.NONE)
    panel = panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"])).mappings([_map(words)])
    return _finish(panel.no_value("unknown"), title, about, runbook, [Query("", expr)])


def show_graph(title: str, about: str, runbook: str, *queries: Query, unit: str, look: Look | None = None) -> Panel:
    """Lines over time."""
    look = look or Look()
    panel = timeseries.Panel().unit(unit).no_value("none so far")
    if not look.signed:
        panel = panel.min(0)
    panel = panel.show_points(common.VisibilityMode.NEVER).line_width(1).fill_opacity(30 if look.stacked else 0)
    panel = panel.legend(
        common_builders.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )
    panel = panel.tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    if look.stacked:
        panel = panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if look.limit is not None:
        panel = panel.thresholds(_thresholds([(None, "transparent"), (look.limit, RED)]))
        style = common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds_style(style)
    for name, colour in look.colours.items():
        properties = [DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})]
        if name == look.total:
            properties += [
                DynamicConfigValue("custom.stacking", {"mode": "none", "group": "A"}),
                DynamicConfigValue("custom.fillOpacity", 0),
                DynamicConfigValue("custom.lineWidth", 2),
            ]
        panel = panel.override_by_name(name, properties)
    return _finish(panel, title, about, runbook, queries)


def show_states(title: str, about: str, runbook: str, *queries: Query, words: Mapping[int, tuple[str, str]]) -> Panel:
    """Bars over time, coloured by state."""
    panel = statetimeline.Panel().show_value(common.VisibilityMode.AUTO).row_height(0.8).mappings([_map(words)])
    panel = panel.legend(common_builders.VizLegendOptions().show_legend(False)).fill_opacity(80)
    panel = panel.no_value("unknown").color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
    return _finish(panel, title, about, runbook, queries)


def show_table(
    title: str, about: str, runbook: str, expr: str, *, columns: Sequence[str], value: str, unit: str
) -> Panel:
    """Labels as columns, and the value under a name and a unit of its own."""
    names = [*columns, "Value"]
    panel = table.Panel().show_header(True).no_value("unknown")
    panel = panel.override_by_name(value, [DynamicConfigValue("unit", unit)])
    panel = panel.with_transformation(
        DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": names}})
    )
    panel = panel.with_transformation(
        DataTransformerConfig(
            id_val="organize",
            options={
                "indexByName": {name: place for place, name in enumerate(names)},
                "renameByName": {"Value": value},
            },
        )
    )
    return _finish(panel, title, about, runbook, [Query("", expr)])


def _finish(panel: Panel, title: str, about: str, runbook: str, queries: Sequence[Query]) -> Panel:
    """What all panels have. The description ends with the section of the runbook that says what to do."""
    description = f"{' '.join(about.split())} Runbook: {RUNBOOK}#{runbook}"
    panel = panel.title(title).description(description).datasource(SOURCE)
    for letter, query in zip("ABCDEF", queries, strict=False):
        target = prometheus.Dataquery().ref_id(letter).datasource(SOURCE).expr(query.expr)
        if isinstance(panel, table.Panel):
            target = target.instant().format(PromQueryFormat.TABLE)
        else:
            target = target.range().format(PromQueryFormat.TIME_SERIES).legend_format(query.legend or title)
        panel = panel.with_target(target)
    return panel


def _thresholds(steps: Sequence[tuple[float | None, str]]) -> ThresholdsConfig:
    absolute = ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE)
    return absolute.steps([Threshold(value=value, color=colour) for value, colour in steps])


def _map(words: Mapping[int, tuple[str, str]]) -> ValueMapping:
    return ValueMap({str(key): ValueMappingResult(text=word, color=colour) for key, (word, colour) in words.items()})

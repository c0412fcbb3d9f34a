"""The dashboard, top to bottom: whether it is well, and if not, where it hurts.

`python -m deploy.grafana.dashboard` writes it anew: Grafana reads the JSON, people read this.
Every panel says what it shows, what is normal, how trouble begins, and where docs/runbook.md goes on.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders.dashboard import AnnotationQuery, Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as built
from grafana_foundation_sdk.models import table

from deploy.grafana.dependencies import show_archive, show_model, show_store
from deploy.grafana.expressions import QUANTILES, select
from deploy.grafana.latency import show_batches, show_mean_by_stage, show_route, show_stage
from deploy.grafana.live import show_live
from deploy.grafana.names import FIRING, STARTED
from deploy.grafana.outcomes import show_compromises, show_events
from deploy.grafana.overview import show_traffic, show_wellness
from deploy.grafana.panels import BLUE, GREEN, RED, SOURCE, Panel
from deploy.grafana.processes import show_processes, show_resources

PATH: Final = Path(__file__).parent / "dashboards" / "nextitem.json"
COLUMNS: Final = 24
MARK_S: Final = 60
"""How long the mark of what happened in a moment is."""

_MODEL: Final = select("nextitem_model_info")
_JOBS: Final = "label_values(nextitem_recommendations_total, job)"
_INSTANCES: Final = 'label_values(up{job=~"$job"}, instance)'


def build() -> built.Dashboard:
    """All of it, placed on the grid and numbered."""
    dashboard = Dashboard("nextitem").uid("nextitem").tags(["nextitem"]).readonly()
    dashboard.description(
        "Next-item recommendations: traffic, latency, batches, events, fallbacks, store, archive, processes and models."
    )
    dashboard.refresh("10s").time("now-30m", "now").tooltip(built.DashboardCursorSync.CROSSHAIR)
    dashboard.with_variable(_choose_source())
    dashboard.with_variable(_choose("job", "Job", _JOBS)).with_variable(_choose("instance", "Instance", _INSTANCES))
    for mark in (
        _mark("Alerts", FIRING, RED),
        _mark("Restarts", f"min by (instance) ({STARTED}) > time() - {MARK_S}", BLUE),
        _mark("Models", f"{_MODEL} unless {_MODEL} offset {MARK_S}s", GREEN),
    ):
        dashboard.annotation(mark)
    top = 0
    for title, height, panels in _list_sections():
        dashboard.with_row(Row(title).grid_pos(built.GridPos(x=0, y=top, w=COLUMNS, h=1)))
        left = 0
        for width, panel in panels:
            dashboard.with_panel(panel.grid_pos(built.GridPos(x=left, y=top + 1, w=width, h=height)))
            left += width
        top += 1 + height
    finished = dashboard.build()
    for number, placed in enumerate(finished.panels or [], start=1):
        placed.id_val = number
        if isinstance(placed, built.Panel) and isinstance(placed.options, table.Options):
            placed.options.footer = None  # the SDK's default; Grafana 13 has no such option
    for variable in finished.templating.list_val or []:
        variable.auto = variable.auto_min = variable.auto_count = None  # an interval's: the SDK gives them to all
    return finished


def _list_sections() -> Iterator[tuple[str, int, list[tuple[int, Panel]]]]:
    """Title, height, and panels with their widths."""
    yield "Is it well?", 4, [(3, panel) for panel in show_wellness()]
    yield "Traffic and errors", 9, [(8, panel) for panel in show_traffic()]
    yield "Latency by route", 9, [(8, show_route(name)) for name in QUANTILES]
    stages = [(5, show_stage(name)) for name in QUANTILES]
    yield "Latency of POST /recommend by stage", 10, [(9, show_mean_by_stage()), *stages]
    yield "Batches", 8, [(8, panel) for panel in show_batches()]
    yield "Events", 8, [(8, panel) for panel in show_events()]
    yield "Answers that could be better", 8, [(6, panel) for panel in show_compromises()]
    yield "Store", 9, list(zip((5, 5, 5, 4, 5), show_store(), strict=True))
    yield "Archive and erasure", 8, list(zip((5, 5, 5, 5, 4), show_archive(), strict=True))
    yield "What the processes take", 8, [(6, panel) for panel in show_resources()]
    yield "Processes", 7, list(zip((5, 5, 5, 9), show_processes(), strict=True))
    yield "Life of the model", 9, list(zip((5, 5, 5, 5, 4), show_live(), strict=True))
    yield "Model", 6, list(zip((14, 10), show_model(), strict=True))


def _choose_source() -> DatasourceVariable:
    """Where there is another source of data, the dashboard can be imported as it is."""
    provisioned = built.VariableOption(selected=True, text="Prometheus", value="nextitem-prometheus")
    return DatasourceVariable("datasource").label("Data source").type("prometheus").current(provisioned)


def _choose(name: str, label: str, query: str) -> QueryVariable:
    variable = QueryVariable(name).label(label).datasource(SOURCE).query({"query": query, "refId": name})
    variable.refresh(built.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(built.VariableSort.ALPHABETICAL_ASC)
    everything = built.VariableOption(selected=True, text="All", value="$__all")
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


def _mark(name: str, expr: str, colour: str) -> AnnotationQuery:
    return AnnotationQuery().name(name).datasource(SOURCE).enable(True).hide(False).icon_color(colour).expr(expr)


def encode() -> str:
    """The dashboard as the JSON that Grafana reads."""
    return json.dumps(build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    PATH.write_text(encode(), encoding="utf-8")

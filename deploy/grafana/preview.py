"""A picture of what the dashboard shows, without Grafana: its queries, sent to a running Prometheus, in its layout.

python -m deploy.grafana.preview --url http://127.0.0.1:9090 --minutes 30 --out docs/dashboard.png
"""

import argparse
import json
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image
from rich.progress import track

from deploy.grafana.dashboard import COLUMNS, PATH
from deploy.grafana.drawing import DRAW, INK, Named, Span
from deploy.grafana.prometheus import Prometheus, PrometheusFailed, choose_rate_interval, fill_in, read_panels

WIDTH_INCHES: Final = 16
UNIT_INCHES: Final = 0.36
"""The height of one row of the grid."""
POINTS: Final = 240
COLOURS: Final = 256
"""A picture of flat areas needs no more, and takes a third of the bytes."""
MARK: Final = "Preview rendered from Prometheus, not Grafana"


def collect(prometheus: Prometheus, panel: dict[str, Any], span: Span) -> list[Named]:
    """The series of all queries of a panel, each with its name in the legend."""
    start_s, end_s = span
    step_s = max((end_s - start_s) / POINTS, 1)
    found: list[Named] = []
    for target in panel["targets"]:
        expr = fill_in(target["expr"], rate_s=choose_rate_interval(step_s))
        if target.get("instant"):
            series = prometheus.query(expr)
        else:
            series = prometheus.query_range(expr, start_s=start_s, end_s=end_s, step_s=step_s)
        found += [(one.name(target.get("legendFormat", "")), one) for one in series]
    return sorted(found, key=lambda named: named[0]) if len(panel["targets"]) == 1 else found


def render(prometheus: Prometheus, path: Path, *, span: Span) -> Figure:
    """The whole dashboard."""
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in document["panels"]) + 1
    figure = Figure(figsize=(WIDTH_INCHES, rows * UNIT_INCHES), facecolor="#f3f4f6")
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(span[1]))
    figure.text(0.008, 1 - 0.55 / rows, document["title"], size=14, weight="bold", color=INK, va="center")
    figure.text(0.992, 1 - 0.55 / rows, f"{MARK} · {when}", size=10, color="#b03030", va="center", ha="right")
    for row in (panel for panel in document["panels"] if panel["type"] == "row"):
        _write_heading(figure, row, rows)
    for panel in track(list(read_panels(path)), description="Panels", transient=True):
        _place(figure, panel, collect(prometheus, panel, span), span, rows)
    return figure


def _write_heading(figure: Figure, row: dict[str, Any], rows: int) -> None:
    figure.text(
        0.008, 1 - (row["gridPos"]["y"] + 1.6) / rows, row["title"], size=10, weight="bold", color=INK, va="center"
    )


def _place(figure: Figure, panel: dict[str, Any], series: list[Named], span: Span, rows: int) -> None:
    """One panel on its place of the grid: a card, a title, and what is drawn in it."""
    grid, kind = panel["gridPos"], panel["type"]
    left, width = grid["x"] / COLUMNS, grid["w"] / COLUMNS
    height = grid["h"] / rows
    bottom = 1 - (grid["y"] + 1) / rows - height
    gap_x, gap_y = 0.003, 0.12 / rows
    card = FancyBboxPatch(
        (left + gap_x, bottom + gap_y), width - 2 * gap_x, height - 2 * gap_y,
        boxstyle="round,pad=0,rounding_size=0.002", mutation_aspect=WIDTH_INCHES / (rows * UNIT_INCHES),
        facecolor="white", edgecolor="#dfe2e6", linewidth=0.8, transform=figure.transFigure, zorder=-1,
    )  # fmt: skip
    figure.add_artist(card)
    figure.text(left + 0.008, bottom + height - 0.65 / rows, panel["title"], size=8.5, color=INK, va="center")
    inset_left = {"stat": 0.008, "table": 0.01}.get(kind, 0.045 if kind == "timeseries" else 0.085)
    inset_bottom = {"stat": 0.4, "table": 0.3}.get(kind, 1.6 if kind == "timeseries" else 1.0) / rows
    place = (
        left + inset_left,
        bottom + inset_bottom,
        width - inset_left - 0.01,
        height - inset_bottom - 1.2 / rows,
    )
    DRAW[kind](figure.add_axes(place), panel, series, span)


def main() -> None:
    """Write the picture, or say in one line why not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", default="http://127.0.0.1:9090", help="where Prometheus listens")
    parser.add_argument("--minutes", type=float, default=30, help="how far back")
    parser.add_argument("--out", type=Path, default=Path("docs/dashboard.png"), help="PNG file to write")
    chosen = parser.parse_args()
    now_s = time.time()
    try:
        figure = render(Prometheus(chosen.url), PATH, span=(now_s - chosen.minutes * 60, now_s))
    except PrometheusFailed as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)  # nothing is written before all is drawn
    drawn = BytesIO()
    figure.savefig(drawn, dpi=100)
    # Without k-means the background is of another colour every time.
    Image.open(drawn).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2).save(
        chosen.out, format="PNG", optimize=True
    )


if __name__ == "__main__":
    main()

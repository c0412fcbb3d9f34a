"""The dashboard's JSON: what its code makes of it, valid by Grafana's own types, over metrics that exist."""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from jsonschema import Draft7Validator
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from deploy.grafana import names
from deploy.grafana.dashboard import COLUMNS, PATH, encode
from deploy.grafana.drawing import draw_states
from deploy.grafana.prometheus import Prometheus, PrometheusFailed, Series, fill_in, read_panels
from deploy.grafana.units import write_value
from service.telemetry.definitions import LIVE_SCORES
from service.telemetry.exposition import DEPRECATED
from service.telemetry.metrics import Metrics

REPOSITORY = Path(__file__).parents[2]
GRAFANA = REPOSITORY / "deploy" / "grafana"
TYPES = Path(__file__).parent / "grafana_dashboard.ts"
GENERATOR = {"ts-json-schema-generator": "2.9.0"}
GRAFANAS = {
    "11.6.0": ("node", "dist/esm/raw/dashboard/x/dashboard_types.gen.d.ts"),  # what the SDK writes for
    "13.2.2": ("bundler", "dist/types/raw/dashboard/x/types.gen.d.ts"),  # what docker-compose.yml starts
}
"""Versions of Grafana's types, how TypeScript finds its way in the package, and where those of dashboards lie."""

DASHBOARD: dict[str, Any] = json.loads(PATH.read_text())
PANELS = list(read_panels(PATH))
SIGNED = ("Evidence, as powers of ten", "Candidate less champion, NDCG@10")
"""Whose values may lie below 0."""
TARGETS = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


def walk(node: Any) -> Iterator[Any]:
    """A PromQL expression and everything in it."""
    yield node
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        inner = getattr(node, name, None)
        if inner is not None:
            yield from walk(inner)
    for argument in getattr(node, "args", None) or []:
        yield from walk(argument)


@pytest.fixture(scope="module")
def known_metrics(alert_rules: list[dict[str, Any]], recording_rules: list[dict[str, Any]]) -> set[str]:
    """Every sample's name that is not deprecated: the service's, the recorded ones, and Prometheus' own."""
    assert len(alert_rules) == 29
    metrics = Metrics(event_types=["view"], model_version="v", routes=[("/x", "GET")])
    exposed = metrics.expose().decode()
    sampled = set(re.findall(r"^([a-z_]+)[{ ]", exposed, re.MULTILINE)) | {"nextitem_model_info", "nextitem_build_info"}
    sampled -= set(DEPRECATED.values())
    sampled |= {definition.name for definition in LIVE_SCORES}  # exposed once a judge has written
    return sampled | {rule["record"] for rule in recording_rules} | {"up", "ALERTS"}


@pytest.fixture(scope="module", params=GRAFANAS)
def schema(request: pytest.FixtureRequest, require_tool: Any) -> dict[str, Any]:
    """A JSON Schema of a version's types, made once for each change of what it is made from."""
    npm, packages = require_tool("npm"), {"@grafana/schema": request.param, **GENERATOR}
    resolution, dashboard_types = GRAFANAS[request.param]
    config = {
        "compilerOptions": {
            "module": "esnext",
            "moduleResolution": resolution,
            "strict": True,
            "types": [],
            "paths": {"dashboard": [f"./node_modules/@grafana/schema/{dashboard_types}"]},
        },
        "files": [TYPES.name],
    }
    inputs = TYPES.read_bytes() + json.dumps([config, packages]).encode()
    folder = REPOSITORY / ".cache" / "grafana-schema" / hashlib.sha256(inputs).hexdigest()[:16]
    made = folder / "schema.json"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TYPES.name).write_bytes(TYPES.read_bytes())
        (folder / "tsconfig.json").write_text(json.dumps(config))
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": packages}))
        _install(npm, folder)
        generator = str(folder / "node_modules" / ".bin" / "ts-json-schema-generator")
        options = [
            "--tsconfig",
            "tsconfig.json",
            "--path",
            TYPES.name,
            "--type",
            "CheckedDashboard",
            "--expose",
            "none",
        ]
        _run([generator, *options, "-o", "made.json"], folder)
        (folder / "made.json").rename(made)
    document: dict[str, Any] = json.loads(made.read_text())
    return document


def _install(npm: str, folder: Path) -> None:
    """Install what package.json names. Where npm does not reach its registry, the test is skipped; in CI it fails.

    In the folder, not by `--prefix`, which moves npm's global configuration too, where a company's certificates stand.
    """
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    if os.environ.get("CI") == "true":
        # npm's own pauses between retries are longer than we wait for it.
        _run([npm, "install", *options, "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"], folder)
        return
    try:
        _run([npm, "install", *options, "--fetch-retries=0", "--fetch-timeout=20000"], folder)
    except AssertionError as failed:
        away = re.search(r"code (ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT)", str(failed))
        if away is None:
            raise
        pytest.skip(f"npm does not reach its registry: {away[1]}")


def _run(command: list[str], folder: Path) -> None:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_committed_json_is_what_the_code_makes() -> None:
    """`python -m deploy.grafana.dashboard` was run after the last change."""
    assert PATH.read_text() == encode()


def test_grafanas_types_accept_the_dashboard(schema: dict[str, Any]) -> None:
    """No field, option or value that Grafana does not know, down to the panels' own options."""
    faults = [
        f"{list(error.absolute_path)}: {error.message}" for error in Draft7Validator(schema).iter_errors(DASHBOARD)
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("panels", 1, "options", "colorMode"), "colourful"),
        (("panels", 1, "fieldConfig", "defaults", "units"), "s"),
        (("panels", 10, "fieldConfig", "defaults", "custom", "lineWidth"), "thick"),
        (("panels", 10, "type"), "graph"),
        (("panels", 10, "targets", 0, "expression"), "up"),
        (("templating", "list", 0, "type"), "choice"),
    ],
)
def test_grafanas_types_refuse_what_is_not_in_them(
    schema: dict[str, Any], place: tuple[str | int, ...], value: str
) -> None:
    """The schema is closed: a misspelt option or a kind of panel that we do not use is found."""
    changed = json.loads(PATH.read_text())
    inner = changed
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    assert not Draft7Validator(schema).is_valid(changed)


@pytest.mark.parametrize(("title", "expr"), TARGETS)
def test_every_query_parses_and_names_metrics_that_exist(title: str, expr: str, known_metrics: set[str]) -> None:
    """PromQL once Grafana's variables are filled in, over the service's metrics and our recorded ones."""
    filled = fill_in(expr, rate_s=60)
    assert "$" not in filled
    selectors = [node for node in walk(promql_parser.parse(filled)) if isinstance(node, promql_parser.VectorSelector)]
    assert selectors, title
    assert {selector.name for selector in selectors} <= known_metrics


@pytest.mark.parametrize(("title", "expr"), [target for target in TARGETS if "ALERTS" not in target[1]])
def test_every_query_heeds_the_chosen_instances(title: str, expr: str) -> None:
    """Each selector is narrowed by both variables; alerts of a job have no instance, and are shown in any case."""
    assert expr.count('{job=~"$job", instance=~"$instance"') == expr.count("{"), title


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_says_what_is_normal_and_where_to_read_on(panel: dict[str, Any]) -> None:
    """A title, a unit or words for its values, a description with the section of the runbook, which exists."""
    assert "Normal: " in panel["description"]
    [anchor] = re.findall(r"Runbook: docs/runbook\.md#([\w-]+)$", panel["description"])
    headings = re.findall(r"^#+ (.+)$", (REPOSITORY / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert anchor in [heading.lower().replace(" ", "-") for heading in headings]
    defaults = panel["fieldConfig"]["defaults"]
    assert "unit" in defaults or "mappings" in defaults or panel["type"] == "table"
    assert panel["type"] != "timeseries" or panel["title"] in SIGNED or defaults["min"] == 0


def test_panels_are_numbered_and_do_not_overlap() -> None:
    """Each has an id, a title and a place of its own on the grid, whose rows are full."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 30
    assert len({panel["title"] for panel in panels}) == len(panels)
    cells = [
        {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        for at in (panel["gridPos"] for panel in panels)
    ]
    for one, other in combinations(cells, 2):
        assert not one & other
    rows = 1 + max(y for cell in cells for _, y in cell)
    assert len(set().union(*cells)) == rows * COLUMNS


def test_the_data_source_is_chosen_and_the_provisioned_one_at_first() -> None:
    """Every panel asks the variable's source, which any Grafana has one for; neither it nor the dashboard is edited."""
    provisioned = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())
    [source] = provisioned["datasources"]
    assert source["editable"] is False
    assert set(re.findall(r'"uid": "([^"]+)"', PATH.read_text())) == {"${datasource}", DASHBOARD["uid"]}
    [chosen] = [variable for variable in DASHBOARD["templating"]["list"] if variable["type"] == "datasource"]
    assert (chosen["name"], chosen["query"]) == ("datasource", source["type"])
    assert (chosen["current"]["value"], chosen["current"]["text"]) == (source["uid"], source["name"])
    assert set(re.findall(r"\$\{[^}]*\}?", PATH.read_text())) == {"${datasource}"}  # no input to be filled in by hand
    assert DASHBOARD["editable"] is False
    scraped = yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "prometheus.yml").read_text())
    interval = {job["job_name"]: job.get("scrape_interval") for job in scraped["scrape_configs"]}["nextitem"]
    assert source["jsonData"]["timeInterval"] == interval


@pytest.mark.parametrize(
    ("alert", "limit"),
    [
        ("NextitemLatencyHigh", names.SLOW_S),
        ("NextitemFallbacksHigh", names.FALLBACKS),
        ("NextitemOverloaded", names.SHED),
        ("NextitemModelStale", names.STALE_S),
        ("NextitemJudgeSilent", names.JUDGE_SILENT_S),
        ("NextitemEventLoopSlow", names.LOOP_LAG_S),
        ("NextitemDescriptorsNearlyExhausted", names.DESCRIPTORS),
        ("NextitemClockSkew", names.SKEW_S),
        ("NextitemArchiveStale", names.NOT_ARCHIVED_S),
        ("NextitemErasureOverdue", names.NOT_ERASED_S),
    ],
)
def test_limits_drawn_are_those_of_the_alerts(alert: str, limit: float, alert_rules: list[dict[str, Any]]) -> None:
    """A dashed line is where the alert begins."""
    [expr] = [rule["expr"] for rule in alert_rules if rule["alert"] == alert]
    comparisons = [node for node in walk(promql_parser.parse(expr)) if str(getattr(node, "op", "")) in {">", ">="}]
    assert limit in [getattr(node.rhs, "val", None) for node in comparisons]


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (0.0021, "s", "2.1 ms"),
        (90, "s", "1.5 min"),
        (7 * 86_400, "s", "7 d"),
        (0, "s", "0"),
        (3 * 2**20, "bytes", "3 MiB"),
        (0.123, "percentunit", "12.3 %"),
        (1500, "reqps", "1.5 K req/s"),
        (2.25, "cps", "2.25 /s"),
        (8, "short", "8"),
        (0.4, "none", "0"),
    ],
)
def test_values_are_written_with_their_units(value: float, unit: str, written: str) -> None:
    """The preview writes numbers as people read them."""
    assert write_value(value, unit) == written


def test_restarts_and_models_are_marked_beside_alerts(known_metrics: set[str]) -> None:
    """What a jump in a graph may come from: each kind of mark is a query over metrics that exist."""
    marks = {mark["name"]: mark["expr"] for mark in DASHBOARD["annotations"]["list"]}
    assert set(marks) == {"Alerts", "Restarts", "Models"}
    for expr in marks.values():
        nodes = walk(promql_parser.parse(fill_in(expr, rate_s=60)))
        assert {node.name for node in nodes if isinstance(node, promql_parser.VectorSelector)} <= known_metrics


def test_legends_say_the_last_value_and_the_highest() -> None:
    """Each graph's legend is a table: what it is now, and what it was at worst."""
    for panel in PANELS:
        if panel["type"] == "timeseries":
            legend = panel["options"]["legend"]
            assert (legend["displayMode"], legend["calcs"]) == ("table", ["lastNotNull", "max"]), panel["title"]


def test_a_prometheus_that_is_not_there_is_named() -> None:
    """One sentence with the address, and no traceback from within."""
    with pytest.raises(PrometheusFailed, match=r"no Prometheus answers at http://127\.0\.0\.1:1"):
        Prometheus("http://127.0.0.1:1").query("up")


def test_bars_end_where_a_series_does() -> None:
    """The preview draws no state of a version that answers no more, as Grafana does not."""
    panel = PANELS[[one["title"] for one in PANELS].index("Versions that answer")]
    axes = Figure().add_subplot()
    gone, stays = Series({}, [0.0, 10.0, 20.0], [0.0, 0.0, 0.0]), Series({}, [20.0, 30.0, 40.0], [0.0, 0.0, 0.0])
    draw_states(axes, panel, [("gone", gone), ("stays", stays)], (0.0, 45.0))
    bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
    ends = [max(bar.get_x() + bar.get_width() for bar in bars if round(bar.get_y()) == row) for row in (0, 1)]
    assert ends == [30.0, 45.0]

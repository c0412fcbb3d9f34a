"""The tables of docs/reference against the code: every setting, metric and route is documented as it is."""

import html
from pathlib import Path
from typing import Any

from service.cli import describe_default
from service.errors import Problem
from service.http.routes import catalogue, erasure, events, lookup, models, operations, recommend, similar
from service.ingest.ingestor import DERIVED_ID_CONFLICT, REFUSALS
from service.settings import PREFIX, Settings
from service.telemetry.definitions import LIVE_SCORES, CounterDefinition
from service.telemetry.metrics import Metrics

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def read_table(page):
    """The rows of a page's first table."""
    section = (REFERENCE / page).read_text().split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| `")]


def test_every_setting_is_documented():
    """Option, variable, default and description are those of the code, in its order."""
    expected = [
        f"| `--{name.replace('_', '-')}` | `{PREFIX}{name.upper()}` "
        f"| {describe_default(field).removeprefix('default: ')} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    assert read_table("settings.md") == expected


def test_every_metric_is_documented():
    """Name, labels, kind and help are those of the code, in its order."""
    metrics = Metrics(event_types=["view"], model_version="v", routes=[("/x", "GET")])
    collectors: dict[Any, list[str]] = metrics._registry._collector_to_names
    expected = [
        f"| `{metric._name}{'_total' if metric._type == 'counter' else ''}` "
        f"| {', '.join(f'`{label}`' for label in metric._labelnames) or 'none'} "
        f"| {metric._type} | {metric._documentation} |"
        for metric in collectors
    ]
    expected += [
        f"| `{metric.name}` | {', '.join(f'`{label}`' for label in metric.labels) or 'none'} "
        f"| {'counter' if isinstance(metric, CounterDefinition) else 'gauge'} | {metric.help} |"
        for metric in LIVE_SCORES
    ]
    assert len(expected) >= 14
    assert read_table("metrics.md") == expected


def test_every_route_is_documented():
    """The table of routes names each with the scope that its key needs."""
    expected = {
        (f"{method} {route.path_format}", next(iter(route.openapi_extra["security"][0].values()))[0])
        if route.openapi_extra["security"]
        else (f"{method} {route.path_format}", "none")
        for module in (catalogue, erasure, events, lookup, models, operations, recommend, similar)
        for route in module.router.routes
        for method in route.methods
    }
    rows = [line.split(" | ") for line in read_table("http-api.md")]
    assert {(row[0].strip("| `"), row[1].strip("`")) for row in rows} == expected
    assert len(rows) == len(expected) >= 10


def test_every_error_is_documented():
    """Status, slug, title and detail of every problem, and every code of a rejection by the store."""
    page = (REFERENCE / "http-api.md").read_text().split("\n## Errors\n")[1].split("\n## ")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    kinds = {
        f"| {kind.status} | `{kind.slug}` | {kind.title} | {html.escape(kind.default_detail)} |"
        for kind in find_kinds(Problem)
    }
    assert {row for row in rows if row[2].isdigit()} == kinds
    codes = {code for _, code, _ in (*REFUSALS.values(), DERIVED_ID_CONFLICT)}
    assert {row.split("`")[1] for row in rows if row.startswith("| `")} == codes


def find_kinds(kind):
    """The subclasses of a problem that have a slug of their own."""
    for below in kind.__subclasses__():
        if "slug" in vars(below):
            yield below
        yield from find_kinds(below)

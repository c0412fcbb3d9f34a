"""Prometheus' HTTP API, and the dashboard's panels as they stand in its JSON, with Grafana's variables filled in."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

SCRAPE_S: Final = 5
"""The data source's timeInterval."""


class PrometheusFailed(Exception):
    """It does not answer, or refuses a query; the message says which."""


@dataclass(frozen=True, slots=True)
class Series:
    """One time series: its labels, and its values by time in seconds."""

    labels: Mapping[str, str]
    times: list[float]
    values: list[float]

    def name(self, legend: str) -> str:
        """What a legend's template makes of the labels."""
        return re.sub(r"{{\s*(\w+)\s*}}", lambda match: self.labels.get(match[1], ""), legend)


class Prometheus:
    """Asks a Prometheus server."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=30)

    def query(self, expr: str) -> list[Series]:
        """The value of an expression now."""
        found = self._ask("query", {"query": expr})
        if found["resultType"] == "scalar":
            return [Series({}, *_transpose([found["result"]]))]
        return [Series(series["metric"], *_transpose([series["value"]])) for series in found["result"]]

    def query_range(self, expr: str, *, start_s: float, end_s: float, step_s: float) -> list[Series]:
        """The values of an expression over time. NaN is left out."""
        found = self._ask("query_range", {"query": expr, "start": start_s, "end": end_s, "step": step_s})
        return [Series(series["metric"], *_transpose(series["values"])) for series in found["result"]]

    def read_rules(self) -> list[dict[str, Any]]:
        """The groups of rules with their states."""
        groups: list[dict[str, Any]] = self._ask("rules", {})["groups"]
        return groups

    def close(self) -> None:
        self._client.close()

    def _ask(self, path: str, parameters: Mapping[str, str | float]) -> dict[str, Any]:
        try:
            answer = self._client.get(f"/api/v1/{path}", params=dict(parameters))
            document = answer.json()
        except (httpx.TransportError, json.JSONDecodeError) as error:
            raise PrometheusFailed(f"no Prometheus answers at {self._client.base_url}: {error}") from error
        if document.get("status") != "success":
            raise PrometheusFailed(f"Prometheus refused {parameters}: {document.get('error')}")
        data: dict[str, Any] = document["data"]
        return data


def read_panels(path: Path) -> Iterator[dict[str, Any]]:
    """Every panel of a dashboard but its rows."""
    for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
        if panel["type"] != "row":
            yield panel


def fill_in(expr: str, *, rate_s: float) -> str:
    """An expression as Grafana sends it with the stack's job and all its instances chosen."""
    return expr.replace("$__rate_interval", f"{rate_s:.0f}s").replace("$instance", ".*").replace("$job", "nextitem")


def choose_rate_interval(step_s: float) -> float:
    """Grafana's $__rate_interval: at least four scrapes, so that one that fails leaves no gap."""
    return max(step_s + SCRAPE_S, 4 * SCRAPE_S)


def _transpose(pairs: list[tuple[float, str]]) -> tuple[list[float], list[float]]:
    numbers = [
        (time_s, value) for time_s, value in ((time_s, float(text)) for time_s, text in pairs) if math.isfinite(value)
    ]
    return [time_s for time_s, _ in numbers], [value for _, value in numbers]

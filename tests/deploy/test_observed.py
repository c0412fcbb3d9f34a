"""Every panel and every rule, asked of a real Prometheus that scrapes the real service with two workers.

The traffic is known to the last request and of every kind, an outage of the store included: an empty answer is a fault.
"""

import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from redis import Redis

from benchmarks.harness.processes import find_url
from deploy.grafana.dashboard import PATH
from deploy.grafana.names import FIRING
from deploy.grafana.preview import MARK, render
from deploy.grafana.prometheus import Prometheus, PrometheusFailed, fill_in, read_panels
from model.contract.bundle import MANIFEST, locate_bundle
from model.contract.deployment.changes import set_candidate
from model.contract.deployment.writer import change_deployment
from service.auth.key_file import SCOPES, create_key

REPOSITORY = Path(__file__).parents[2]
CONFIG = REPOSITORY / "deploy" / "prometheus"
BUNDLE = REPOSITORY / "tests" / "serving" / "bundle"

ROUNDS = 9
OUTAGES = (1, 3)
"""Rounds in which the store does not answer: two, since no rate shows the first sample of a new status code."""
HISTORY_LENGTH = 3
RATE_S = 600
"""Longer than all of it: rates then see the whole traffic."""

PANELS = {panel["title"]: panel for panel in read_panels(PATH)}
TARGETS = [(title, target["expr"]) for title, panel in PANELS.items() for target in panel["targets"]]
RULES = [
    rule
    for file in sorted((CONFIG / "rules").glob("*.yml"))
    for group in yaml.safe_load(file.read_text())["groups"]
    for rule in group["rules"]
]


@dataclass
class Traffic:
    """Sends requests, and counts what the service must have counted."""

    client: httpx.Client
    store: Redis
    sent: Counter[str] = field(default_factory=Counter)

    def ask(self, *, source: str, degraded: str | None = None, **fields: object) -> None:
        """One recommendation, which must come about as expected."""
        answer = self.client.post("/recommend", json={"timeout_ms": 2000, **fields}).raise_for_status().json()
        assert (answer["source"], answer["degraded"]) == (source, degraded)
        self.sent[source] += 1
        self.sent["degraded"] += degraded is not None

    def send(self, status: int, *events: dict[str, object]) -> None:
        """Events in one request."""
        answer = self.client.post("/events", json={"events": events})
        assert answer.status_code == status, answer.text
        if status == 200:
            receipt = answer.json()
            self.sent += Counter({key: receipt[key] for key in ("accepted", "duplicates", "late")})
            self.sent["rejected"] += len(receipt["rejected"])

    def play(self, number: int) -> None:
        """One round of everything that happens to a service."""
        user, now_ms = f"u{number}", int(time.time() * 1000)
        events = [
            {"user_id": user, "item_id": f"i0{step}", "event_id": f"e{step}", "timestamp": now_ms - 1000 * step}
            for step in range(1, HISTORY_LENGTH + 1)
        ]
        self.send(200, *events, {"user_id": user, "item_id": "i01", "type": "nope"})
        self.send(200, events[0], {"user_id": user, "item_id": "i09", "event_id": "late", "timestamp": now_ms - 9**8})
        for _ in range(4):
            self.ask(source="model", user_id=user, k=3)
        self.ask(source="model", items=["i01", "unheard-of"])
        self.sent["unknown"] += 1
        self.ask(source="popular", user_id=f"stranger{number}")
        assert self.client.get("/items/unheard-of").status_code == 404
        assert self.client.post("/recommend", json={"user_id": 7}).status_code == 422
        assert self.client.get(f"/users/{user}/history").status_code == 200
        assert self.client.delete(f"/users/gone{number}").status_code == 204  # pending until the archiver's next run
        assert self.client.get("/health/ready").status_code == 200
        stranger = {"Authorization": f"Bearer nk_stranger_{'x' * 43}"}
        assert self.client.post("/recommend", json={"user_id": user}, headers=stranger).status_code == 401
        if number in OUTAGES:
            self.store.execute_command("CLIENT", "PAUSE", "2200", "ALL")
            for _ in range(3):  # a few: below five errors there is no alert
                self.ask(source="popular", degraded="store_unavailable", user_id=user)
            self.send(503, {"user_id": user, "item_id": "i04", "event_id": "refused"})


@pytest.fixture(scope="module")
def observed(require_tool: Callable[[str], str]) -> Iterator[tuple[Prometheus, Traffic, float]]:
    """Prometheus after the traffic, what was sent, and when it began."""
    binary = require_tool("prometheus")
    with ExitStack() as stack:
        # A short path: the embedded store's socket lies in it.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seen-")))
        key = create_key(folder / "keys.json", SCOPES)
        (folder / "key").write_text(key)
        url = stack.enter_context(_serve(folder))
        prometheus = stack.enter_context(_watch(binary, folder, url))
        [socket_path] = folder.glob("nextitem-store-*/store.sock")
        store = stack.enter_context(Redis(unix_socket_path=str(socket_path)))
        store.config_set("maxmemory", "64mb")
        traffic = Traffic(
            stack.enter_context(httpx.Client(base_url=url, timeout=60, headers={"Authorization": f"Bearer {key}"})),
            store,
        )
        began_s = time.time()
        _wait_for(lambda: prometheus.query('up{job="nextitem"} == 1'))
        for number in range(ROUNDS):
            traffic.play(number)
            time.sleep(0.8)
        # The store's gauges are up to 4 s old, and were taken in an outage perhaps; counts take a scrape.
        answers = traffic.sent["model"] + traffic.sent["popular"]
        _wait_for(
            lambda: prometheus.query(
                f"sum(nextitem_recommendations_total) == {answers} and min(nextitem_store_durable) == 1"
            )
        )
        # What the judge writes comes every few seconds.
        _wait_for(lambda: prometheus.query("max(nextitem_trial_difference) >= 0"))
        time.sleep(2)
        yield prometheus, traffic, began_s


@contextmanager
def _serve(folder: Path) -> Iterator[str]:
    """nextitem-serve with two workers, the embedded store, a judge and a candidate in shadow; its address."""
    bundles = shutil.copytree(BUNDLE, folder / "bundles")
    champion = locate_bundle(bundles)
    candidate = shutil.copytree(champion, bundles / "20261123T101500-again")
    manifest = json.loads((candidate / MANIFEST).read_bytes()) | {"version": candidate.name}
    (candidate / MANIFEST).write_text(json.dumps(manifest))
    change_deployment(bundles, set_candidate(candidate.name), action="candidate", by="test")
    options = f"--bundle {bundles} --judge auto --port 0 --workers 2"
    options += f" --history-length {HISTORY_LENGTH} --data-dir {folder / 'data'}"
    options += f" --keys-file {folder / 'keys.json'}"
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", *options.split()],
            stderr=log,
            env={**os.environ, "TMPDIR": str(folder)},
        )
    try:
        written = folder / "serve.log"
        _wait_for(lambda: find_url(written.read_bytes()) or process.poll() is not None)
        url = find_url(written.read_bytes())
        assert url, written.read_text()
        yield url
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _watch(binary: str, folder: Path, url: str) -> Iterator[Prometheus]:
    """Prometheus with our configuration, but for addresses and for time: everything each second, alerts at once."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = yaml.safe_load((CONFIG / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    targets = {"nextitem": url.removeprefix("http://"), "prometheus": address}
    for job in config["scrape_configs"]:
        if "authorization" in job:
            job["authorization"] = {"credentials_file": str(folder / "key")}
        job |= {
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "static_configs": [{"targets": [targets[job["job_name"]]]}],
        }
    (folder / "rules").mkdir()
    hasty = [{**rule, **({"for": "0s"} if "alert" in rule else {})} for rule in RULES]
    (folder / "rules" / "hasty.yml").write_text(yaml.safe_dump({"groups": [{"name": "hasty", "rules": hasty}]}))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen([binary, *options, f"--web.listen-address={address}"], stderr=log)
    try:
        prometheus = Prometheus(f"http://{address}")
        _wait_for(lambda: _answers(prometheus) or process.poll() is not None)
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        yield prometheus
        prometheus.close()
    finally:
        process.terminate()
        process.wait(30)


def _answers(prometheus: Prometheus) -> bool:
    try:
        return bool(prometheus.query("vector(1)"))
    except PrometheusFailed:
        return False


def _wait_for(happened: Callable[[], object], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def value_of(prometheus: Prometheus, expr: str) -> float:
    """The one value of an expression, in which variables are filled in."""
    [series] = prometheus.query(fill_in(expr, rate_s=RATE_S))
    return series.values[-1]


@pytest.mark.parametrize(("title", "expr"), TARGETS)
def test_every_panel_shows_something(observed: tuple[Prometheus, Traffic, float], title: str, expr: str) -> None:
    """No query is empty or NaN after traffic of every kind."""
    prometheus, _, _ = observed
    series = prometheus.query(fill_in(expr, rate_s=RATE_S))
    assert series, title
    assert all(one.values for one in series), [one.labels for one in series if not one.values]


def list_operands(node: Any) -> list[str]:
    """What an alert compares: without its comparisons it must not be empty, or it could never fire."""
    if isinstance(node, promql_parser.ParenExpr):
        return list_operands(node.expr)
    if isinstance(node, promql_parser.Call) and node.func.name == "absent":
        return list_operands(node.args[0])
    if isinstance(node, promql_parser.BinaryExpr) and str(node.op) in {"==", ">", ">=", "<", "and", "or", "unless"}:
        return [*list_operands(node.lhs), *list_operands(node.rhs)]
    return [] if isinstance(node, promql_parser.NumberLiteral) else [node.prettify()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_rule_has_something_to_judge(observed: tuple[Prometheus, Traffic, float], rule: dict[str, Any]) -> None:
    """What is recorded is there; both sides of whatever an alert compares or combines are there."""
    prometheus, _, _ = observed
    if "record" in rule:
        assert prometheus.query(rule["record"])
    # No request gets a 500, by design: the same of a code that the traffic has.
    operands = list_operands(promql_parser.parse(rule["expr"].replace('code="500"', 'code="422"')))
    assert operands
    for expr in operands:
        series = prometheus.query(expr)
        assert series, expr
        assert all(one.values for one in series), expr


def test_every_rule_is_evaluated_without_error(observed: tuple[Prometheus, Traffic, float]) -> None:
    """Prometheus reports each rule healthy."""
    prometheus, _, _ = observed
    rules = [rule for group in prometheus.read_rules() for rule in group["rules"]]
    assert len(rules) == len(RULES)
    assert {rule["health"] for rule in rules} == {"ok"}


def test_alerts_of_the_outage_mark_the_graphs(observed: tuple[Prometheus, Traffic, float]) -> None:
    """The dashboard's annotation finds what fired while the store was away, and nothing that did not happen."""
    prometheus, _, began_s = observed
    fired = prometheus.query_range(FIRING, start_s=began_s, end_s=time.time(), step_s=1)
    names = {series.labels["alertname"] for series in fired}
    assert "NextitemStoreErrors" in names
    assert not names & {"NextitemNoModelAnswers", "NextitemStoreNearlyFull"}


def test_counts_are_those_of_the_traffic(observed: tuple[Prometheus, Traffic, float]) -> None:
    """What two workers counted between them is what was sent, to the last request."""
    prometheus, traffic, _ = observed
    sent = traffic.sent
    assert all(sent[name] for name in ("model", "popular", "degraded", "accepted", "duplicates", "late", "rejected"))
    expected = {
        'nextitem_recommendations_total{source="model"}': sent["model"],
        'nextitem_recommendations_total{source="popular"}': sent["popular"],
        "nextitem_fallbacks_total": sent["degraded"],
        'nextitem_events_total{result="accepted"}': sent["accepted"],
        'nextitem_events_total{result="duplicate"}': sent["duplicates"],
        'nextitem_events_total{result="rejected"}': sent["rejected"],
        "nextitem_events_late_total": sent["late"],
        "nextitem_event_lag_seconds_count": sent["accepted"],
        "nextitem_unknown_items_total": sent["unknown"],
        'nextitem_http_request_duration_seconds_count{code="503"}': len(OUTAGES),
        'nextitem_http_request_duration_seconds_count{code="401"}': ROUNDS,
        'nextitem_http_request_duration_seconds_count{code="422"}': ROUNDS,
        'nextitem_http_request_duration_seconds_count{code="404"}': ROUNDS,
    }
    assert {expr: value_of(prometheus, f"sum({expr})") for expr in expected} == expected


def test_shares_are_those_of_the_traffic(observed: tuple[Prometheus, Traffic, float]) -> None:
    """The panels' ratios, whose rates see the traffic through Prometheus' extrapolation, come to what was sent."""
    prometheus, traffic, _ = observed
    answers = traffic.sent["model"] + traffic.sent["popular"]
    for title, count in (
        ("From the model", traffic.sent["model"]),
        ("Share of cold starts", traffic.sent["popular"] - traffic.sent["degraded"]),
    ):
        [target] = PANELS[title]["targets"]
        assert value_of(prometheus, target["expr"]) == pytest.approx(count / answers, rel=0.05)


def test_stages_add_up_to_the_whole(observed: tuple[Prometheus, Traffic, float]) -> None:
    """The mean times by stage make the mean of the whole, within 5 %."""
    prometheus, _, _ = observed
    stages, whole = (target["expr"] for target in PANELS["Mean time by stage, and of the whole"]["targets"])
    parts = prometheus.query(fill_in(stages, rate_s=RATE_S))
    assert {series.labels["stage"] for series in parts} == {"encode", "queue", "history", "inference", "respond"}
    total_s = value_of(prometheus, whole)
    assert total_s > 0
    assert math.fsum(series.values[-1] for series in parts) == pytest.approx(total_s, rel=0.05)


def test_the_preview_draws_every_panel(observed: tuple[Prometheus, Traffic, float]) -> None:
    """The picture has each panel's title and something drawn for it, and says that it is no Grafana."""
    prometheus, _, began_s = observed  # drawn last: it takes long, and panels above show the last minute
    figure = render(prometheus, PATH, span=(began_s, time.time()))
    texts = [text.get_text() for text in figure.texts]
    assert set(PANELS) <= set(texts)
    assert any(MARK in text for text in texts)
    assert len(figure.axes) == len(PANELS)
    assert all(axes.has_data() or axes.texts or axes.tables for axes in figure.axes)

"""Prometheus' configuration and rules, checked and run by promtool; the cases stand in *.test.yml."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
CONFIG = REPOSITORY / "deploy" / "prometheus" / "prometheus.yml"
ALERTS = CONFIG.parent / "rules" / "alerts.yml"
CASES = sorted(Path(__file__).parent.glob("*.test.yml"))
SECONDS = {"s": 1, "m": 60, "h": 3600}

Rule = dict[str, Any]


def read_groups(file: Path) -> list[dict[str, Any]]:
    """The groups of rules in a file."""
    groups: list[dict[str, Any]] = yaml.safe_load(file.read_text())["groups"]
    return groups


def run(promtool: str, *arguments: str) -> str:
    """What promtool prints; it must be content."""
    ended = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_configuration_and_its_rules_are_valid(require_tool: Any, tmp_path: Path) -> None:
    """Both files of rules are found by promtool, the key where it is said to be, and nothing wrong in them."""
    shutil.copytree(CONFIG.parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / "key").touch()
    (tmp_path / CONFIG.name).write_text(CONFIG.read_text().replace("/secrets/prometheus/key", str(tmp_path / "key")))
    printed = run(require_tool("promtool"), "check", "config", "--lint-fatal", str(tmp_path / CONFIG.name))
    assert "2 rule files found" in printed
    assert "29 rules found" in printed


def narrow(test: dict[str, Any], groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules that a test looks at: promtool works all of them out at each step, and would look at no other."""
    if "promql_expr_test" in test:
        return groups
    names = {check["alertname"] for check in test["alert_rule_test"]}
    return [{**group, "rules": [rule for rule in group["rules"] if rule.get("alert") in names]} for group in groups]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_alerts_fire_when_they_should_and_only_then(require_tool: Any, case: Path, tmp_path: Path) -> None:
    """Outages, restarts, several instances, no traffic, no series at all."""
    document = yaml.safe_load(case.read_text())
    groups = [group for file in document["rule_files"] for group in read_groups(case.parent / file)]
    files = []
    for number, test in enumerate(document["tests"]):
        (tmp_path / f"rules{number}.json").write_text(json.dumps({"groups": narrow(test, groups)}))
        files.append(tmp_path / f"case{number}.json")
        files[-1].write_text(json.dumps(document | {"rule_files": [f"rules{number}.json"], "tests": [test]}))
    printed = run(require_tool("promtool"), "test", "rules", *map(str, files))
    assert printed.count("SUCCESS") == len(files) > 0


def test_every_alert_is_seen_firing_and_silent(alert_rules: list[dict[str, Any]]) -> None:
    """No alert without both a case in which it fires and one in which it does not."""
    checks = [
        check
        for case in CASES
        for test in yaml.safe_load(case.read_text())["tests"]
        for check in test.get("alert_rule_test", [])
    ]
    alerts = {rule["alert"] for rule in alert_rules}
    assert {check["alertname"] for check in checks if check.get("exp_alerts")} == alerts
    assert {check["alertname"] for check in checks if not check.get("exp_alerts")} == alerts


def move(rule: Rule, step_s: int) -> Iterator[tuple[str, Rule]]:
    """A rule with one thing changed: limits by 4 %, `for` by an evaluation, a matcher left out, `> 0` made `>= 0`."""
    expr, patience = rule["expr"], rule["for"]
    patience_s = int(patience[:-1]) * SECONDS[patience[-1]]
    for moved_s in (patience_s - step_s, patience_s + step_s):
        yield f"for {moved_s}s", {**rule, "for": f"{moved_s}s"}
    edits = [(found, [">= 0" if found[0] == "> 0" else "!= 0"]) for found in re.finditer(r"(>|==) 0(?![.\d])", expr)]
    edits += [
        (found, [f"{float(found[0]) * factor:.9g}" for factor in (0.96, 1.04)])
        for found in re.finditer(r"(?<=[>=] )[\d.]*[1-9][\d.]*|(?<=quantile\()[\d.]+", expr)
    ]
    edits += [(found, [""]) for found in re.finditer(r'\w+="[^"]*"(, )?', expr)]
    for found, replacements in edits:
        for new in replacements:
            what = f"{found[0].rstrip(', ')} at {found.start()} -> {new or 'nothing'}"
            yield what, {**rule, "expr": expr[: found.start()] + new + expr[found.end() :]}


def select_cases(alert: str) -> tuple[str, list[dict[str, Any]]]:
    """The cases that look at one alert, and how often rules are evaluated in them."""
    interval, chosen = "", []
    for document in (yaml.safe_load(case.read_text()) for case in CASES):
        for test in document["tests"]:
            checks = [check for check in test.get("alert_rule_test", []) if check["alertname"] == alert]
            if checks:
                chosen.append({**test, "alert_rule_test": checks})
                if any("exp_alerts" in check for check in checks):
                    interval = document["evaluation_interval"]
    return interval, chosen


RULES: list[Rule] = read_groups(ALERTS)[0]["rules"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_cases_notice_every_limit_that_moves(require_tool: Any, rule: Rule, tmp_path: Path) -> None:
    """Each limit, each `for` and each matcher is held by a case: changed a little, one fails that passed before."""
    interval, tests = select_cases(rule["alert"])
    step_s = int(interval[:-1]) * SECONDS[interval[-1]]
    moved = list(move(rule, step_s))
    assert len(moved) >= 3
    # All in one run, under names of their own: reading the series takes longer than working out a rule.
    rules = {f"rule{number}": changed for number, (_, changed) in enumerate([("as it is", rule), *moved])}
    group = {"name": "one", "rules": [{**changed, "alert": name} for name, changed in rules.items()]}
    checked = [
        {
            **test,
            "alert_rule_test": [{**check, "alertname": name} for name in rules for check in test["alert_rule_test"]],
        }
        for test in tests
    ]
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [group]}))
    case = {"rule_files": ["rules.json"], "evaluation_interval": interval, "tests": checked}
    (tmp_path / "case.json").write_text(json.dumps(case))
    command = [require_tool("promtool"), "test", "rules", str(tmp_path / "case.json")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    printed = ended.stdout + ended.stderr
    assert "parse error" not in printed
    passed = {*rules} - {*re.findall(r"alertname: ?(rule\d+),", printed)}
    assert "rule0" in passed, printed
    assert [what for number, (what, _) in enumerate(moved, 1) if f"rule{number}" in passed] == []


def test_every_alert_says_how_bad_it_is_and_what_to_do(alert_rules: list[dict[str, Any]]) -> None:
    """Severity, a summary, a description with the value, and a section of the runbook that exists."""
    headings = re.findall(r"^### (.+)$", (REPOSITORY / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in alert_rules]
    for rule in alert_rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert "$value" in rule["annotations"]["description"]
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["for"]

"""What all of it came to: every model in one table, how far the network is above each, and what to publish."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.auto.choice import COUNTERS
from training.evaluation.metrics import PRIMARY_METRIC
from training.evaluation.results import (
    find_weakness,
    format_interval,
    format_results,
    format_verdict,
    format_weights,
    is_beyond_chance,
)

SESSIONS = "session-knn"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The results of the network's run, which hold every model's, and which model of those that can be served won."""

    results: Mapping[str, Any]
    tested: str
    """The network, under its name in the results."""
    best: str
    """The best model of all, whether it can be published or not."""
    winner: str
    """The best one that can be published."""


def judge(results: Mapping[str, Any], tested: str) -> Verdict:
    """The verdict by NDCG@10. The network alone, which stands beside itself with rules, is no model of its own."""
    names = [tested, *(name for name in COUNTERS if name in results["models"])]
    servable = [name for name in names if name != SESSIONS]
    best, winner = (find_best(results["models"], some) for some in (names, servable))
    return Verdict(results=results, tested=tested, best=best or tested, winner=winner or tested)


def find_best(models: Mapping[str, Any], among: Collection[str]) -> str | None:
    """The one of some names whose NDCG@10 is highest, None of none."""
    return max(sorted(among), key=lambda name: float(models[name][PRIMARY_METRIC]["value"]), default=None)


def format_all(verdict: Verdict) -> str:
    """The table, the leads and the sentences."""
    results = verdict.results
    lines = [format_results(results, results["models"]), "", *_list_leads(verdict), ""]
    lines += _compare_with_counters(verdict)
    lines += format_weights(results)
    weakness = find_weakness(results)
    if weakness and verdict.winner == verdict.tested:
        lines.append(f"WARNING: {weakness}.")
    return "\n".join(lines)


def _compare_with_counters(verdict: Verdict) -> list[str]:
    """Who wins, the network or the best of those that count; nothing where none of these was asked."""
    results = verdict.results
    counter = find_best(results["models"], set(COUNTERS) & set(results["models"]))
    if counter is None:
        return []
    lead = results["leads"][counter]
    names = verdict.tested, counter
    if lead["value"] < 0:
        lead = {"value": -lead["value"], "low": -lead["high"], "high": -lead["low"]}
        names = counter, verdict.tested
    comparison = {"winner": names[0], "second": names[1], "metric": PRIMARY_METRIC, "lead": lead}
    return [format_verdict(comparison, results["users"])]


def _list_leads(verdict: Verdict) -> list[str]:
    """How far the network's NDCG@10 is above that of each other model, over the same users."""
    leads, users = verdict.results["leads"], verdict.results["users"]
    width = max(10, *(len(name) + 2 for name in leads))
    lines = [f"{PRIMARY_METRIC} of {verdict.tested} above that of each, over the same users (95 %)"]
    for name, lead in leads.items():
        if not is_beyond_chance(lead, users):
            word = "chance can explain it"
        else:
            word = "better" if lead["low"] > 0 else "worse"
        lines.append(f"{name:<{width}}{format_interval(lead, '+'):>28}  {word}")
    return lines


def format_next(verdict: Verdict, out: Path, data: Path) -> str:
    """What to type next: how the winner is published and served."""
    run, log = shlex.quote(str(out)), shlex.quote(str(data))
    lines = []
    neighbours = ""
    if verdict.best == SESSIONS:
        neighbours = f" --neighbours {log}"
        lines.append(
            "session-knn is best, and compares whole histories, which no bundle holds as its model: publish the best "
            'other one with these neighbours, and requests with "ranker": "neighbours" are answered by session-knn.'
        )
    lines += [
        f"Publish {verdict.winner}, and serve it:",
        f"  nextitem-train publish {run} --out bundles{neighbours}",
        f"  nextitem-serve import {log} && nextitem-serve --bundle bundles",
    ]
    return "\n".join(lines)

"""What `nextitem-serve models` prints: tables and sentences for people, documents for programs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.contract.deployment.document import Deployment
from model.contract.deployment.journal import Entry
from model.contract.deployment.live_sums import LiveScores
from model.contract.deployment.versions import Version
from service.deployment_commands.workers import Sight

NDCG = "NDCG@10"


def format_rows(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def describe_versions(
    versions: Iterable[Version], deployment: Deployment | None, sight: Sight, live: LiveScores | None
) -> list[dict[str, Any]]:
    """What `list --json` prints. `workers` is null where they cannot be seen, `live_...` where nothing was scored."""
    return [
        {
            "version": version.name,
            "role": name_role(version.name, deployment),
            "trained_at": version.manifest.trained_at if version.manifest else None,
            "items": version.manifest.item_count if version.manifest else None,
            "ndcg_at_10": _find_score(version),
            **_describe_live(version.name, live),
            "workers": None if sight.fault else sight.count_on(version.name),
            "fault": version.fault,
        }
        for version in versions
    ]


def format_versions(described: Iterable[Mapping[str, Any]]) -> str:
    """The table of `list`."""
    rows: list[tuple[str, ...]] = [("version", "role", "trained", "items", NDCG, "live", "trials", "workers", "")]
    for one in described:
        cells = (one["version"], one["role"] or "-", one["trained_at"] or "-", _or_dash(one["items"]))
        scores = (_format_score(one["ndcg_at_10"]), _format_score(one["live_ndcg_at_10"]), str(one["live_trials"]))
        rows.append((*cells, *scores, _or_dash(one["workers"], unknown="?"), one["fault"] or ""))
    return format_rows(rows)


def name_role(version: str, deployment: Deployment | None) -> str | None:
    """champion, candidate, previous, or None."""
    roles = ("champion", "candidate", "previous")
    return next((role for role in roles if deployment and getattr(deployment, role) == version), None)


def describe_deployment(deployment: Deployment) -> dict[str, Any]:
    """The document, as deployment.json holds it."""
    document: dict[str, Any] = json.loads(deployment.to_bytes())
    return document


def format_deployment(deployment: Deployment) -> str:
    """Who answers, in one sentence."""
    words = f"generation {deployment.generation}: {deployment.champion} answers"
    if deployment.candidate is None:
        return f"{words}, nobody is on trial"
    if deployment.mode == "shadow":
        return f"{words}, {deployment.candidate} is on trial in shadow"
    return f"{words}, {deployment.candidate} is on trial and answers {deployment.share:.2%} of users"


def describe_status(deployment: Deployment, sight: Sight, stray: str | None) -> dict[str, Any]:
    """What `status --json` prints."""
    return {
        "deployment": describe_deployment(deployment),
        "current": stray or deployment.champion,
        "workers_unseen": sight.fault,
        "workers": [
            {
                "worker": worker.worker,
                "generation": worker.generation,
                "champion": worker.champion,
                "candidate": worker.candidate,
                "breaker_open": worker.breaker_open,
                "refused": worker.refused
                and {"version": worker.refused.version, "code": worker.refused.code, "since": worker.refused.since},
            }
            for worker in sight.workers
        ],
        "other_workers": len(sight.others),
    }


def format_status(deployment: Deployment, sight: Sight) -> str:
    """The deployment, and a row for each worker."""
    lines = [
        ("generation", str(deployment.generation)),
        ("champion", f"{deployment.champion}{_say_since(deployment)}"),
        ("candidate", _say_candidate(deployment)),
        ("previous", deployment.previous or "-"),
        ("verdicts", "by the judge" if deployment.trial.auto else "held: only people promote and return"),
    ]
    text = format_rows(lines)
    if sight.others:
        text += f"\n\n{len(sight.others)} workers of other bundle folders, or of single bundles, report to this store."
    if not sight.workers:
        return text
    rows: list[tuple[str, ...]] = [("worker", "generation", "champion", "candidate", "refused")]
    for worker in sight.workers:
        refused = f"{worker.refused.version} ({worker.refused.code})" if worker.refused else "-"
        candidate = f"{worker.candidate or '-'}{' (breaker open)' if worker.breaker_open else ''}"
        rows.append((worker.worker, str(worker.generation), worker.champion, candidate, refused))
    return f"{text}\n\n{format_rows(rows)}"


def format_journal(entries: Iterable[Entry]) -> str:
    """The table of `journal`. Cells hold no control characters: the lines may be of anybody's hand."""
    rows: list[tuple[str, ...]] = [("at", "generation", "by", "action", "to", "why")]
    for entry in entries:
        changed = entry.get("to")
        to = " ".join(f"{name}={value}" for name, value in changed.items()) if isinstance(changed, dict) else ""
        cells = (entry.get("at"), entry["generation"], entry.get("by"), entry.get("action"), to, entry.get("why"))
        rows.append(tuple(_make_plain(cell) for cell in cells))
    return format_rows(rows)


def _find_score(version: Version) -> float | None:
    metrics = version.manifest.metrics if version.manifest else {}
    return next((value for name, value in metrics.items() if name.upper() == NDCG), None)


def _describe_live(version: str, live: LiveScores | None) -> dict[str, Any]:
    """The live NDCG@10 of a version over all events that were scored, as champion or as candidate."""
    sums = [one for series, one in live.totals.items() if series.version == version] if live else []
    trials = sum(one.trials for one in sums)
    return {"live_ndcg_at_10": sum(one.ndcg for one in sums) / trials if trials else None, "live_trials": trials}


def _format_score(score: float | None) -> str:
    return "-" if score is None else f"{score:.4f}"


def _say_since(deployment: Deployment) -> str:
    if not deployment.history or deployment.history[-1].champion != deployment.champion:
        return ""
    entry = deployment.history[-1]
    why = f": {entry.why}" if entry.why else ""
    return _make_plain(f", since {entry.at or 'before the first change'} by {entry.by}{why}")


def _say_candidate(deployment: Deployment) -> str:
    if deployment.candidate is None:
        return "-"
    share = f", {deployment.share:.2%} of users" if deployment.mode == "canary" else ""
    return f"{deployment.candidate}, {deployment.mode}{share}"


def _or_dash(value: object, *, unknown: str = "-") -> str:
    return unknown if value is None else str(value)


def _make_plain(value: object) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in _or_dash(value, unknown=""))

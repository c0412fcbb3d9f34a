"""What is known of a bundle folder's models beyond who answers: live scores, the trial's evidence, the last changes."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from model.contract.deployment.document import Deployment, DeploymentMalformed
from model.contract.deployment.journal import Entry, read_journal
from model.contract.deployment.live_scores import LiveScoresMalformed, read_live_scores
from model.contract.deployment.live_sums import LiveScores
from service.api.operator_responses import (
    Difference,
    JournalLine,
    JudgeDescription,
    LiveScore,
    TrialDescription,
    TrialReport,
)
from service.api.timestamps import format_rfc_3339

MAX_LINES: Final = 50
"""The newest changes that are told."""
MAX_TEXT: Final = 300
"""Characters of a journal line's field: the file may be of anybody's hand."""


def report_trial(root: Path, deployment: Deployment) -> TrialReport:
    """Live scores, evidence and journal of a bundle folder. What cannot be read is left out."""
    try:
        scores = read_live_scores(root)
    except LiveScoresMalformed:
        scores = None  # the judge says so, and begins it anew
    return TrialReport(
        live=[] if scores is None else list(_describe_live(scores)),
        judge=None if scores is None else _describe_judge(scores),
        trial=None if scores is None else _describe_trial(scores, deployment),
        journal=_read_last(root),
    )


def _describe_live(scores: LiveScores) -> Iterator[LiveScore]:
    for series in {**scores.offline, **scores.totals}:
        sums = scores.totals.get(series)
        trials = 0 if sums is None else sums.trials
        yield LiveScore(
            version=series.version,
            variant=series.variant,
            trials=trials,
            hr_at_10=sums.hits / trials if sums and trials else None,
            ndcg_at_10=sums.ndcg / trials if sums and trials else None,
            offline_ndcg_at_10=scores.offline.get(series),
        )


def _describe_judge(scores: LiveScores) -> JudgeDescription:
    return JudgeDescription(
        at=format_rfc_3339(int(scores.at_s * 1000)),
        lag_s=scores.lag_s,
        refused=list(scores.refused),
        verdicts=scores.verdicts,
    )


def _describe_trial(scores: LiveScores, deployment: Deployment) -> TrialDescription | None:
    """The trial of the candidate that is on trial now; None for what the judge kept of another one."""
    trial, figures = scores.trial, scores.figures
    if trial is None or figures is None or trial.get("candidate") != deployment.candidate:
        return None
    began_ms = trial.get("began_ms")
    if not isinstance(began_ms, int) or deployment.candidate is None:
        return None
    low_to_high = figures.difference
    return TrialDescription(
        candidate=deployment.candidate,
        champion=deployment.champion,
        began_at=format_rfc_3339(began_ms),
        pairs=figures.pairs,
        min_trials=deployment.trial.min_trials,
        difference=None
        if low_to_high is None
        else Difference(mean=low_to_high[0], low=low_to_high[1], high=low_to_high[2]),
        evidence_better=figures.e_values.get("promote", 1.0),
        evidence_worse=figures.e_values.get("return", 1.0),
        proof=1 / deployment.trial.alpha,
    )


def _read_last(root: Path) -> list[JournalLine] | None:
    try:
        entries = deque(read_journal(root), maxlen=MAX_LINES)
    except DeploymentMalformed:
        return None
    return [_describe_line(entry) for entry in reversed(entries)]


def _describe_line(entry: Entry) -> JournalLine:
    changed = entry.get("to")
    pairs = changed.items() if isinstance(changed, dict) else ()
    return JournalLine(
        at=_cut(entry.get("at")),
        generation=entry["generation"],
        by=_cut(entry.get("by")),
        action=_cut(entry.get("action")),
        to=_cut(", ".join(f"{name}: {'none' if value is None else value}" for name, value in pairs)),
        why=_cut(entry.get("why")),
    )


def _cut(value: object) -> str:
    return "" if value is None else str(value)[:MAX_TEXT]

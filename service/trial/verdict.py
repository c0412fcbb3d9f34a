"""What becomes of a trial now: a pure function of its state and of what was observed.

```
none -> shadow -> canary -> promoted        terms.path = "shadow": none -> shadow -> promoted
           |         |
           +----+----+--> returned          shown worse, a broken guardrail, or undecided after max_days
```
A verdict is one move at most. The caller makes it, with a line in the journal; the trial follows the deployment. What
a person does to the deployment always wins: without `terms.auto` the judge looks on.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from service.trial.guardrails import Action as GuardrailAction
from service.trial.guardrails import Finding, Observations, State, check_guardrails
from service.trial.state import Trial

Action = Literal["none", "canary", "promote", "return", "hold"]
"""none: nothing to do yet. hold: something is broken or not known; nothing is done until it is mended."""
NOT_A_TRIAL = frozenset({"traffic", "judge", "store"})
"""Guardrails without which time does not count against a candidate: nothing was tried meanwhile."""
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, and why."""

    action: Action
    why: str
    """One plain sentence without its full stop."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """For the journal: means of NDCG@10, their difference, counts, e-values, guardrails."""


def decide(trial: Trial, observations: Observations, now_ms: int) -> Verdict:
    """The verdict on a trial at `now_ms`, the store's time. First what ends a trial, then what holds it."""
    findings = check_guardrails(observations, trial.mode, silent_s=_measure_silence(trial, now_ms))
    action, why = _choose(trial, observations, findings, now_ms)
    return Verdict(action, why, describe(trial, findings))


def _choose(trial: Trial, observations: Observations, findings: tuple[Finding, ...], now_ms: int) -> tuple[Action, str]:
    return (
        _stand_back(trial)
        or _send_back(trial, findings)
        or _wait(trial, findings, now_ms)
        or _go_on(trial, _list_wants(trial, observations, now_ms), now_ms)
    )


def _stand_back(trial: Trial) -> tuple[Action, str] | None:
    if trial.mode == "off":
        return "none", "no candidate is on trial"
    if not trial.terms.auto:
        return "none", "the judge does not decide: it was told to hold; `resume` lets it go on"
    return None


def _send_back(trial: Trial, findings: tuple[Finding, ...]) -> tuple[Action, str] | None:
    if broken := _pick(findings, "broken", "return"):
        return "return", f"guardrail: {_join(broken)}"
    idle = any(finding.rule in NOT_A_TRIAL for finding in _pick(findings, "broken", "hold"))
    if not idle and trial.n >= trial.terms.min_trials and trial.worse.reaches(trial.terms.alpha):
        return "return", f"shown worse: {_compare(trial, worse=True)}"
    return None


def _wait(trial: Trial, findings: tuple[Finding, ...], now_ms: int) -> tuple[Action, str] | None:
    blocked = _pick(findings, "broken", "hold") + _pick(findings, "missing")
    if not blocked:
        return None
    idle = any(finding.rule in NOT_A_TRIAL for finding in blocked)
    if _is_over(trial, now_ms) and not idle:
        return "return", f"undecided after {trial.terms.max_days:g} days: {_join(blocked)}"
    return "hold", f"nothing can be concluded: {_join(blocked)}"


def _go_on(trial: Trial, wanted: list[str], now_ms: int) -> tuple[Action, str]:
    if not wanted:
        if _leads_to_canary(trial):
            return "canary", f"not shown worse: {_compare(trial, worse=True)}"
        return "promote", f"shown better: {_compare(trial, worse=False)}"
    if _is_over(trial, now_ms):
        return "return", f"undecided after {trial.terms.max_days:g} days: it wants {', '.join(wanted)}"
    return "none", f"{trial.mode}: it wants {', '.join(wanted)}"


def _leads_to_canary(trial: Trial) -> bool:
    return trial.mode == "shadow" and trial.terms.path == "canary"


def _is_over(trial: Trial, now_ms: int) -> bool:
    return now_ms - trial.began_ms > trial.terms.max_days * DAY_MS


def _list_wants(trial: Trial, observations: Observations, now_ms: int) -> list[str]:
    """What the next move still wants, in words."""
    terms = trial.terms
    wanted = []
    if trial.n < terms.min_trials:
        wanted.append(f"{terms.min_trials:,} paired events and has {trial.n:,}")
    if _leads_to_canary(trial):
        return wanted
    if not trial.better.reaches(terms.alpha):
        more = trial.estimate_more_events()
        about = f"about {more:,} more events" if more is not None else "more events, how many cannot be told yet"
        wanted.append(f"an e-value of {1 / terms.alpha:g} and has {spell_e_value(trial.better.log_e)}: {about}")
    if trial.mode == "canary":
        answers = observations.candidate.answers or 0
        if answers < terms.min_answers:
            wanted.append(f"{terms.min_answers:,} answers by the candidate and has {answers:,}")
        since_ms = now_ms if trial.canary_since_ms is None else trial.canary_since_ms
        hours = (now_ms - since_ms) / HOUR_MS
        if hours < terms.min_hours:
            wanted.append(f"{terms.min_hours:g} hours in canary and has {hours:.1f}")
    return wanted


def describe(trial: Trial, findings: Iterable[Finding] = ()) -> dict[str, Any]:
    """The evidence as a line of the journal holds it, within 1 KiB."""
    neutral = trial.neutral.tally
    difference = neutral.estimate_difference(trial.terms.alpha)
    broken = [finding for finding in findings if finding.state in ("broken", "missing")]
    return {
        "ndcg@10": [round(mean, 4) for mean in neutral.means],
        "diff": [round(value, 4) for value in difference] if difference else None,
        **{ground: evidence.tally.n for ground, evidence in trial.evidence.items()},
        "log10_e": {"better": _to_log10(trial.better.log_e), "worse": _to_log10(trial.worse.log_e)},
        "guardrails": {finding.rule: finding.state for finding in broken} or "all kept",
    }


def spell_e_value(log_e: float) -> str:
    """An e-value for people: the exponent alone where it is beyond a million."""
    return f"{math.exp(log_e):.3g}" if abs(log_e) < math.log(1e6) else f"1e{_to_log10(log_e):+.0f}"


def _compare(trial: Trial, *, worse: bool) -> str:
    away = worse and trial.mode == "canary"
    tally = (trial.evidence["away"] if away else trial.neutral).tally
    champion, candidate = tally.means
    where = "paired events of its own users" if away else "paired events"
    return (
        f"NDCG@10 is {candidate:.4f} with the candidate and {champion:.4f} with the champion over {tally.n:,} {where}; "
        f"the e-value is {spell_e_value((trial.worse if worse else trial.better).log_e)}"
    )


def _measure_silence(trial: Trial, now_ms: int) -> float:
    newest = trial.began_ms if trial.last_ms is None else max(trial.began_ms, trial.last_ms)
    return max(0.0, (now_ms - newest) / 1000)


def _pick(findings: Iterable[Finding], state: State, action: GuardrailAction | None = None) -> list[Finding]:
    return [finding for finding in findings if finding.state == state and action in (None, finding.action)]


def _join(findings: Iterable[Finding]) -> str:
    return "; ".join(finding.why for finding in findings)


def _to_log10(log_e: float) -> float:
    return round(log_e / math.log(10), 2)

"""What sends a candidate back whatever its gains, and what makes the judge wait: pure rules over what was observed.

Every rule has one action. What cannot be judged for want of data is said, and holds the trial where the data should be
there; that a candidate did well is never concluded from silence.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from model.contract.deployment.document import Mode

Action = Literal["return", "hold"]
State = Literal["kept", "broken", "too few", "missing"]
"""too few: below the rule's least number, which blocks nothing. missing: the data should be there; the trial waits."""

LEAST_ANSWERS = 500
"""Answers of each variant before their shares and times are compared."""
LEAST_LISTS = 500
"""Lists of each variant before these are compared."""
MORE_FAILURES = 0.01
SLOWER, SLOWER_S = 1.5, 0.005
LEAST_COVERAGE = 0.5
MORE_POPULAR = 0.10
MORE_UNKNOWN = 0.05
SPLIT_E_VALUE = 1_000
SPLIT_TOLERANCE = 2.0
"""All answers of a user are one variant's, so that answers are no independent draws: from half the share to twice
passes."""
SPLIT_PRIOR = 100.0
"""Answers that the split's prior is worth (Lindon & Malek's concentration)."""
SILENT_S = 3600.0
BEHIND_S = 60.0


@dataclass(frozen=True, kw_only=True)
class VariantObservations:
    """What was observed of one variant since the trial, or the canary, began. None: it is not known."""

    answers: int | None = None
    """Answers that this variant was to make, degraded and failed ones included."""
    failures: int | None = None
    """Runs of the model that failed."""
    degraded: int | None = None
    inference_counts: Sequence[int] | None = None
    """Runs by time: as many in each bucket of `Observations.inference_bounds_s`, and beyond the last."""
    lists: int | None = None
    """Lists that the judge has seen, the newest 2,000."""
    coverage: float | None = None
    """Different items in the first ten places of those lists."""
    popularity: float | None = None
    """Mean percentile of popularity of those items, 0 to 1, 1 the most popular."""
    unknown: float | None = None
    """Share of the items in histories that the model does not know."""


@dataclass(frozen=True, kw_only=True)
class Observations:
    """What was observed of a trial beyond its gains. The defaults say that nothing is known."""

    champion: VariantObservations = VariantObservations()
    candidate: VariantObservations = VariantObservations()
    inference_bounds_s: Sequence[float] = ()
    """Upper bounds of the buckets, rising, in seconds."""
    share: float = 0.0
    """Share of users that the candidate is to answer."""
    assigned: tuple[int, int] | None = None
    """Answers of champion and candidate since the share is what it is. None: as many as in all."""
    refused_by: int | None = None
    """Workers that refused to load the candidate."""
    breakers_opened: int | None = None
    """How often a worker took the candidate out of use because it failed or was slow."""
    lag_s: float | None = None
    """How far the judge is behind the log's newest event."""
    store_reachable: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule found."""

    rule: str
    state: State
    action: Action
    """What follows where the rule is broken."""
    why: str = ""
    """One plain phrase; empty where the rule is kept."""


def check_guardrails(seen: Observations, mode: Mode, *, silent_s: float) -> tuple[Finding, ...]:
    """All rules that apply in this mode. `silent_s`: seconds since the last paired event.

    A candidate in shadow answers nobody: its answers, failures, times and share are judged in canary only.
    """
    rules: tuple[Callable[[Observations], Finding], ...] = (
        _check_refusals, _check_coverage, _check_popularity, _check_unknown,
    )  # fmt: skip
    if mode == "canary":
        rules += (_check_breakers, _check_failures, _check_degraded, _check_times, _check_split)
    return (*(rule(seen) for rule in rules), _check_lag(seen), _check_store(seen), _check_silence(silent_s))


def estimate_p99(bounds_s: Sequence[float], counts: Sequence[int]) -> float:
    """The 99th percentile in seconds, linear within its bucket; the last bound for what lies beyond it."""
    wanted, below, lower = 0.99 * sum(counts), 0, 0.0
    for bound, count in zip(bounds_s, counts, strict=False):
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below, lower = below + count, bound
    return lower


def split_log_e_value(candidate: int, total: int, share: float, *, tolerance: float = SPLIT_TOLERANCE) -> float:
    """The logarithm of the e-value that the candidate's part of all answers is not near its share.

    Lindon & Malek, "Anytime-valid inference for multinomial count data" (arXiv 2011.03567), equation 3, for two
    outcomes: the marginal likelihood under a beta prior around the share, over that of the likeliest share from
    `share / tolerance` to `share * tolerance`, the lowest e-value of all these hypotheses. Shares of 0 and 1 leave
    nothing to chance: infinite, or 0.
    """
    low, high = share / tolerance, min(1.0, share * tolerance)
    likeliest = min(high, max(low, candidate / total)) if total else share
    others = total - candidate
    if (candidate and likeliest == 0) or (others and likeliest == 1):
        return math.inf
    if not 0 < share < 1:
        return 0.0
    a, b = SPLIT_PRIOR * share, SPLIT_PRIOR * (1 - share)
    marginal = _log_beta(a + candidate, b + others) - _log_beta(a, b)
    fixed = (candidate * math.log(likeliest) if candidate else 0.0) + (
        others * math.log1p(-likeliest) if others else 0.0
    )
    return marginal - fixed


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _decide(rule: str, action: Action, broken: bool, why: str) -> Finding:
    return Finding(rule, "broken", action, why) if broken else Finding(rule, "kept", action)


def _miss(rule: str, action: Action, what: str) -> Finding:
    return Finding(rule, "missing", action, f"{what} is not known")


def _check_refusals(seen: Observations) -> Finding:
    if seen.refused_by is None:
        return _miss("refused", "return", "whether a worker refused it")
    return _decide("refused", "return", seen.refused_by > 0, f"{_count(seen.refused_by, 'worker')} refused to load it")


def _check_breakers(seen: Observations) -> Finding:
    if seen.breakers_opened is None:
        return _miss("breaker", "return", "whether it was taken out of use")
    why = f"it failed or was slow and was taken out of use {_count(seen.breakers_opened, 'time')}"
    return _decide("breaker", "return", seen.breakers_opened > 0, why)


def _check_failures(seen: Observations) -> Finding:
    return _compare_parts("failures", "failed", seen, seen.champion.failures, seen.candidate.failures)


def _check_degraded(seen: Observations) -> Finding:
    return _compare_parts("degraded", "were degraded", seen, seen.champion.degraded, seen.candidate.degraded)


def _compare_parts(
    rule: str, verb: str, seen: Observations, of_champion: int | None, of_candidate: int | None
) -> Finding:
    answers = seen.champion.answers, seen.candidate.answers
    if answers[0] is None or answers[1] is None or of_champion is None or of_candidate is None:
        return _miss(rule, "return", f"how many of its answers {verb}")
    if min(answers[0], answers[1]) < LEAST_ANSWERS:
        return Finding(rule, "too few", "return", f"fewer than {LEAST_ANSWERS} answers of each")
    champion, candidate = of_champion / answers[0], of_candidate / answers[1]
    why = f"{candidate:.1%} of its answers {verb}, {champion:.1%} of the champion's"
    return _decide(rule, "return", candidate > champion + MORE_FAILURES, why)


def _check_times(seen: Observations) -> Finding:
    counts = seen.champion.inference_counts, seen.candidate.inference_counts
    if counts[0] is None or counts[1] is None or not seen.inference_bounds_s:
        return _miss("inference time", "return", "how long its runs take")
    if min(sum(counts[0]), sum(counts[1])) < LEAST_ANSWERS:
        return Finding("inference time", "too few", "return", f"fewer than {LEAST_ANSWERS} runs of each")
    champion, candidate = (estimate_p99(seen.inference_bounds_s, each) for each in (counts[0], counts[1]))
    why = f"99 % of its runs take up to {1e3 * candidate:.1f} ms, of the champion's {1e3 * champion:.1f} ms"
    return _decide("inference time", "return", candidate > SLOWER * champion + SLOWER_S, why)


def _check_coverage(seen: Observations) -> Finding:
    def compare(champion: float, candidate: float) -> tuple[bool, str]:
        why = f"its lists hold {candidate:g} different items, the champion's {champion:g}"
        return candidate < LEAST_COVERAGE * champion, why

    return _compare_lists("coverage", "how many items its lists hold", seen, compare, "coverage")


def _check_popularity(seen: Observations) -> Finding:
    def compare(champion: float, candidate: float) -> tuple[bool, str]:
        why = f"the mean percentile of popularity of its lists is {candidate:.2f}, of the champion's {champion:.2f}"
        return candidate > champion + MORE_POPULAR, why

    return _compare_lists("popularity", "how popular the items of its lists are", seen, compare, "popularity")


def _check_unknown(seen: Observations) -> Finding:
    def compare(champion: float, candidate: float) -> tuple[bool, str]:
        why = f"it does not know {candidate:.1%} of the items in histories, the champion {champion:.1%}"
        return candidate > champion + MORE_UNKNOWN, why

    return _compare_lists("unknown items", "what it knows of histories", seen, compare, "unknown")


def _compare_lists(
    rule: str,
    what: str,
    seen: Observations,
    compare: Callable[[float, float], tuple[bool, str]],
    name: Literal["coverage", "popularity", "unknown"],
) -> Finding:
    lists = seen.champion.lists, seen.candidate.lists
    if lists[0] is not None and lists[1] is not None and min(lists[0], lists[1]) < LEAST_LISTS:
        return Finding(rule, "too few", "return", f"fewer than {LEAST_LISTS} lists of each")
    champion, candidate = getattr(seen.champion, name), getattr(seen.candidate, name)
    if champion is None or candidate is None or None in lists:
        return _miss(rule, "return", what)
    return _decide(rule, "return", *compare(champion, candidate))


def _check_split(seen: Observations) -> Finding:
    champion, candidate = seen.assigned or (seen.champion.answers, seen.candidate.answers)
    if champion is None or candidate is None:
        return _miss("split", "hold", "how many answers are its own")
    total = champion + candidate
    why = f"{candidate:,} of {total:,} answers are its own, where its share of users is {seen.share:.1%}"
    broken = split_log_e_value(candidate, total, seen.share) >= math.log(SPLIT_E_VALUE)
    return _decide("split", "hold", broken, why)


def _check_lag(seen: Observations) -> Finding:
    if seen.lag_s is None:
        return _miss("judge", "hold", "how far the judge is behind the log")
    return _decide("judge", "hold", seen.lag_s > BEHIND_S, f"the judge is {seen.lag_s:.0f} s behind the log")


def _check_store(seen: Observations) -> Finding:
    return _decide("store", "hold", not seen.store_reachable, "the store does not answer")


def _check_silence(silent_s: float) -> Finding:
    why = f"there was no paired event for {silent_s / 3600:.1f} hours"
    return _decide("traffic", "hold", silent_s > SILENT_S, why)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"

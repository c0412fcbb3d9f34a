"""What is simulated, and what is promised of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.trial.events import EVENTS, Floats, Numbers, Stream, solve
from benchmarks.trial.paths import NEVER, find_first, follow_e_value, peek_daily
from model.contract.deployment.document import TrialTerms

TERMS = TrialTerms(path="shadow")
MEAN, DEVIATION = 0.10, 0.13
"""The champion's mean gain, and the standard deviation of paired differences."""
TASTE, STRONG_TASTE = 0.2, 0.5
"""The share of the models' difference that is the visit's; correlations of .07 and .21 between a visit's gains."""
MOST_ERRORS = 0.062
"""Of a chance of 5 % no more than this is seen in 1,000 trials, but for one time in twenty."""
LEAST_FOUND = 0.95

Verdict = Literal["promoted", "returned", "returned away"]
Method = Literal["visits", "events", "t-test"]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A row of the table: what is on trial, the verdict that is counted, by which method, and what is promised."""

    name: str
    candidate: float
    """The candidate's mean gain."""
    verdict: Verdict
    events: int = EVENTS
    taste: float = TASTE
    method: Method = "visits"
    """visits: as the service does. events: each event a bet. t-test: looked at each day."""
    promised: Literal["rarely", "nearly always", "nothing"]
    """nothing: it is here to be compared with."""

    @property
    def least(self) -> int:
        """The first event at which a verdict counts. An error counts from the first on, which is stricter."""
        return TERMS.min_trials if self.promised == "nearly always" else 1

    def answer(self, seed: int, trials: int) -> Numbers:
        """After how many events each trial had the verdict; NEVER where it had not."""
        stream = solve(MEAN, self.candidate, DEVIATION, self.taste).draw(
            np.random.default_rng(seed), trials, self.events
        )
        if self.method == "t-test":
            return peek_daily(self.doubt(stream))
        path = follow_e_value(self.doubt(stream), stream.visits if self.method == "visits" else None)
        return find_first(path, TERMS.alpha, self.least)

    def doubt(self, stream: Stream) -> Floats:
        """What the verdict bets on being above 0, of each event."""
        if self.verdict == "promoted":
            return stream.candidate - (1 - TERMS.margin) * stream.champion
        margin = TERMS.return_margin if self.verdict == "returned" else 0.0
        return (1 - margin) * stream.champion - stream.candidate

    def is_kept(self, share: float) -> bool | None:
        """Whether this share of trials with the verdict is what was promised; None where nothing was."""
        kept: Mapping[str, bool] = {"rarely": share <= MOST_ERRORS, "nearly always": share >= LEAST_FOUND}
        return kept.get(self.promised)


QUESTIONS = (
    Question(name="no better", candidate=MEAN, verdict="promoted", promised="rarely"),
    Question(name="no worse", candidate=MEAN, verdict="returned", promised="rarely"),
    Question(name="no worse", candidate=MEAN, verdict="returned away", promised="rarely"),
    Question(name="no better, visits alike", candidate=MEAN, verdict="promoted", taste=STRONG_TASTE, promised="rarely"),
    Question(name="half as good", candidate=0.05, verdict="returned", events=500, promised="nearly always"),
    Question(name="20 % worse", candidate=0.08, verdict="returned", events=6_000, promised="nearly always"),
    Question(name="20 % better", candidate=0.12, verdict="promoted", events=3_000, promised="nearly always"),
    Question(name="no better", candidate=MEAN, verdict="promoted", method="events", promised="nothing"),
    Question(
        name="no better, visits alike",
        candidate=MEAN,
        verdict="promoted",
        taste=STRONG_TASTE,
        method="events",
        promised="nothing",
    ),
    Question(name="no better", candidate=MEAN, verdict="promoted", method="t-test", promised="nothing"),
)


def share_of(firsts: Numbers) -> float:
    """The share of trials that had the verdict."""
    return float((firsts != NEVER).mean())

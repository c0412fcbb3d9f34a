"""The same events through the service's own trial and verdicts: the arrays must not be a second truth."""

from collections.abc import Iterable

import numpy as np

from benchmarks.trial.cases import DEVIATION, MEAN, TERMS, Question
from benchmarks.trial.events import solve
from benchmarks.trial.paths import NEVER
from service.trial.guardrails import Observations, VariantObservations
from service.trial.state import Trial
from service.trial.verdict import Action, decide

ALIKE = VariantObservations(lists=2_000, coverage=500.0, popularity=0.7, unknown=0.01)
ALL_WELL = Observations(champion=ALIKE, candidate=ALIKE, refused_by=0, lag_s=0.0)
HOUR_MS = 3_600_000
EVENT_MS = 60_000


def count_agreeing(questions: Iterable[Question], trials: int) -> tuple[int, int]:
    """In how many trials of planted differences the state machine decides at the event that the arrays say, of all."""
    agreeing = asked = 0
    for question in questions:
        if question.promised != "nearly always":
            continue
        for seed in range(trials):
            agreeing += int(question.answer(seed, 1)[0]) == _decide_one(question, seed)
            asked += 1
    return agreeing, asked


def _decide_one(question: Question, seed: int) -> int:
    """The event at which the state machine promotes or returns a trial in shadow, as the question says."""
    case = solve(MEAN, question.candidate, DEVIATION, question.taste)
    stream = case.draw(np.random.default_rng(seed), 1, question.events)
    trial = Trial.begin("candidate", "champion", TERMS, 0)
    action = {"promoted": "promote", "returned": "return"}[question.verdict]
    for number, (champion, candidate, visit) in enumerate(
        zip(stream.champion[0], stream.candidate[0], stream.visits[0], strict=True), 1
    ):
        at_ms = number * EVENT_MS
        trial.record(float(champion), float(candidate), ground="home", at_ms=at_ms, visitor=int(visit))
        if decide(trial, ALL_WELL, at_ms).action == action:
            return number
    return NEVER


def watch_silence() -> set[Action]:
    """What is decided each hour of twenty days after the last of 600 events, which ended well for the candidate."""
    trial = Trial.begin("candidate", "champion", TERMS, 0)
    for number in range(600):
        trial.record(0.0, 1.0, ground="home", at_ms=number)
    return {decide(trial, ALL_WELL, 600 + hour * HOUR_MS).action for hour in range(2, 20 * 24)}

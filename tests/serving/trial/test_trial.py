"""A trial's state: what is kept apart, what visits are, and what survives a restart."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.contract.deployment.document import TrialTerms
from service.trial import state
from service.trial.evidence import BETS, TrialMalformed
from service.trial.state import GROUNDS, Trial, round_to_two_digits

HOUR_MS = 3_600_000
TERMS = TrialTerms()
EVENTS = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.floats(0, 1),
        st.sampled_from(GROUNDS),
        st.integers(0, 10 * HOUR_MS),
        st.none() | st.integers(0, 2),
    ),
    max_size=30,
)


def begin(**terms):
    """A new trial of B against A."""
    return Trial.begin("B", "A", TrialTerms(**terms), 1_000)


def record_all(trial, events):
    """Record events as drawn."""
    for champion, candidate, ground, at_ms, visitor in events:
        trial.record(champion, candidate, ground=ground, at_ms=at_ms, visitor=visitor)


@settings(deadline=None, max_examples=40)
@given(EVENTS, st.sampled_from(["off", "shadow", "canary"]))
def test_a_trial_survives_json(events, mode):
    """All but the visits under way, which are about people; and within 4 KiB."""
    trial = begin()
    trial.follow(mode, TERMS, 5_000)
    record_all(trial, events)
    text = json.dumps(trial.to_dict())
    assert len(text) < 4096
    read = Trial.from_dict(json.loads(text), TERMS)
    assert read == trial
    assert read.n == len(events)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidate": "../B"}, "candidate"),
        ({"champion": None}, "champion"),
        ({"mode": "live"}, "mode"),
        ({"began_ms": None}, "began_ms"),
        ({"began_ms": 1.5}, "began_ms"),
        ({"last_ms": -1}, "last_ms"),
        ({"margins": [0.0, 0.2]}, "margins"),
        ({"evidence": None}, "evidence"),
        ({"evidence": {}}, "evidence"),
    ],
)
def test_a_malformed_trial_is_refused(changes, words):
    """With the name of the field."""
    with pytest.raises(TrialMalformed, match=words):
        Trial.from_dict({**begin().to_dict(), **changes}, TERMS)
    with pytest.raises(TrialMalformed, match="object"):
        Trial.from_dict([], TERMS)


def test_each_ground_has_its_say():
    """Promotion never looks where the candidate served; return in canary looks there alone, without a margin."""
    trial = begin(margin=0.02, return_margin=0.1)
    for ground in ("home", "organic"):
        trial.record(0.5, 1.0, ground=ground, at_ms=0)
    expected = [math.log1p(bet * (1.0 - 0.98 * 0.5)) * 2 for bet in BETS]
    assert trial.better.log_wealths == pytest.approx(expected)
    assert trial.worse.log_wealths == pytest.approx([math.log1p(bet * (0.9 * 0.5 - 1.0)) * 2 for bet in BETS])
    trial.record(0.5, 0.25, ground="away", at_ms=0)
    assert trial.better.log_wealths == pytest.approx(expected)
    trial.follow("canary", trial.terms, 10)
    assert trial.better.log_wealths == pytest.approx(expected)
    assert trial.worse.log_wealths == pytest.approx([math.log1p(bet * 0.25) for bet in BETS])
    assert trial.n == 3


def test_an_hour_of_one_visitor_is_one_bet():
    """Another visitor, another ground, an hour later, and no name are other bets."""
    trial = begin()
    for _ in range(2):
        trial.record(0.0, 0.4, ground="home", at_ms=0, visitor=7)
    assert trial.better.log_wealths == pytest.approx([math.log1p(bet * 0.8) for bet in BETS])
    for visitor, ground, at_ms in ((8, "home", 0), (7, "organic", 0), (7, "home", HOUR_MS), (None, "home", HOUR_MS)):
        trial.record(0.0, 0.4, ground=ground, at_ms=at_ms, visitor=visitor)
    assert trial.better.log_wealths == pytest.approx(
        [math.log1p(bet * 0.8) + 4 * math.log1p(bet * 0.4) for bet in BETS]
    )


def test_visits_are_forgotten(monkeypatch):
    """An hour after they began, or where there are too many."""
    monkeypatch.setattr(state, "MAX_VISITS", 10)
    trial = begin()
    for visitor in range(50):
        trial.record(0.0, 0.4, ground="home", at_ms=visitor, visitor=visitor)
    assert len(trial._visits) <= 11
    trial.record(0.0, 0.4, ground="home", at_ms=2 * HOUR_MS)
    assert not trial._visits


def test_canary_hours_begin_anew():
    """Leaving canary ends them; a later word about the same canary does not move them."""
    trial = begin()
    for mode, at_ms, expected in (
        ("shadow", 1, None),
        ("canary", 2, 2),
        ("canary", 3, 2),
        ("shadow", 4, None),
        ("canary", 5, 5),
    ):
        trial.follow(mode, TERMS, at_ms)
        assert trial.canary_since_ms == expected


def test_other_versions_or_margins_are_another_trial():
    """Other terms are not: they are followed."""
    trial = begin()
    assert trial.continues("B", "A", TrialTerms(auto=False, alpha=0.01))
    for candidate, champion, terms in (
        ("C", "A", TERMS),
        ("B", "C", TERMS),
        (None, "A", TERMS),
        ("B", "A", TrialTerms(margin=0.02)),
        ("B", "A", TrialTerms(return_margin=0.2)),
    ):
        assert not trial.continues(candidate, champion, terms)
    with pytest.raises(ValueError, match="another trial"):
        trial.follow("shadow", TrialTerms(margin=0.02), 0)
    trial.follow("shadow", TrialTerms(auto=False), 0)
    assert not trial.terms.auto


def test_more_events_are_told_as_about():
    """None where nothing leads anywhere, at least what the minimum wants, and two digits."""
    trial = begin(min_trials=500)
    assert trial.estimate_more_events() is None
    for number in range(100):
        trial.record(0.1, 0.1, ground="home", at_ms=number)
    assert trial.estimate_more_events() is None
    for number in range(100):
        trial.record(0.0, 1.0, ground="home", at_ms=number)
    assert trial.estimate_more_events() == 300
    assert [round_to_two_digits(value) for value in (7.4, 99, 1_949, 12_500_000)] == [7, 99, 1_900, 12_000_000]

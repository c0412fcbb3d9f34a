"""The state machine: each move on both sides of its conditions, and what no order of things may lead to."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.contract.deployment.document import TrialTerms
from service.trial.guardrails import Observations, VariantObservations
from service.trial.state import Trial
from service.trial.verdict import DAY_MS, HOUR_MS, decide, spell_e_value

WELL = VariantObservations(
    answers=10_000,
    failures=0,
    degraded=0,
    inference_counts=(10_000, 0),
    lists=2_000,
    coverage=400.0,
    popularity=0.7,
    unknown=0.02,
)
ALL_WELL = Observations(
    champion=WELL,
    candidate=WELL,
    inference_bounds_s=(0.005,),
    share=0.5,
    refused_by=0,
    breakers_opened=0,
    lag_s=0.0,
)
SHADOW_ALONE = {"path": "shadow"}


def begin(mode="shadow", **terms):
    """A trial that began at 0, on the terms that stand if nothing else is said."""
    trial = Trial.begin("B", "A", TrialTerms(**terms), 0)
    trial.follow(mode, trial.terms, 0)
    return trial


def play(trial, *, wins=0, losses=0, ties=0, ground="home", at_ms=0):
    """Record events that the candidate wins by .5, loses by .5, or ties."""
    for number, gains in ((wins, (0.0, 0.5)), (losses, (0.5, 0.0)), (ties, (0.5, 0.5))):
        for _ in range(number):
            trial.record(*gains, ground=ground, at_ms=at_ms)
    return trial


def act(trial, seen=ALL_WELL, now_ms=1_000):
    """The action of a verdict."""
    return decide(trial, seen, now_ms).action


def test_shadow_leads_to_canary_after_enough_events():
    """Not shown worse is enough; nothing is promoted from there on this path, however good."""
    assert act(play(begin(), ties=499)) == "none"
    assert act(play(begin(), ties=500)) == "canary"
    assert act(play(begin(), wins=500)) == "canary"


def test_shadow_alone_leads_to_promotion():
    """By the evidence alone: no answers and no hours are waited for."""
    trial = play(begin(**SHADOW_ALONE), ties=600)
    assert act(trial) == "none"
    verdict = decide(play(trial, wins=50), ALL_WELL, 1_000)
    assert verdict.action == "promote"
    assert verdict.why.startswith("shown better: NDCG@10 is 0.5000 with the candidate and 0.4615 with the champion")
    assert act(play(begin(**SHADOW_ALONE), wins=499)) == "none"


def test_canary_wants_evidence_answers_hours_and_guardrails():
    """Each of them alone keeps the champion."""
    day = 24 * HOUR_MS
    trial = play(begin("canary"), ties=500, wins=50, at_ms=day)
    assert act(trial, now_ms=day) == "promote"
    assert act(trial, now_ms=day - 1) == "none"
    few = replace(ALL_WELL, candidate=replace(WELL, answers=999), share=0.1)
    assert act(trial, few, now_ms=day) == "none"
    assert act(trial, replace(few, candidate=replace(WELL, answers=1_000)), now_ms=day) == "promote"
    assert act(trial, replace(ALL_WELL, breakers_opened=None), now_ms=day) == "hold"
    assert act(play(begin("canary"), ties=550, at_ms=day), now_ms=day) == "none"


def test_what_it_wants_is_said():
    """In words, with about how many more events."""
    verdict = decide(play(begin("canary"), ties=100, wins=4), ALL_WELL, HOUR_MS)
    assert verdict.why == (
        "canary: it wants 500 paired events and has 104, an e-value of 20 and has 1.54: about 400 more events, "
        "24 hours in canary and has 1.0"
    )
    assert "how many cannot be told yet" in decide(begin(**SHADOW_ALONE), ALL_WELL, 1).why


def test_shown_worse_is_returned():
    """In shadow by events at home, in canary by those of its own users, from the least number of events on."""
    assert act(play(begin(), losses=499)) == "none"
    assert act(play(begin(), losses=500)) == "return"
    assert act(play(begin("canary"), losses=500)) == "none"
    verdict = decide(play(begin("canary"), losses=500, ground="away"), ALL_WELL, 1_000)
    assert verdict.action == "return"
    assert verdict.why.startswith(
        "shown worse: NDCG@10 is 0.0000 with the candidate and 0.5000 with the champion over 500 paired events of its "
        "own users; the e-value is 1e+"
    )


def test_a_loss_within_the_return_margin_is_not_shown_worse():
    """A tenth of the champion's gain is borne in shadow, and not on its own users' ground."""
    trial = begin()
    for _ in range(5_000):
        trial.record(0.5, 0.46, ground="home", at_ms=0)
    assert act(trial) == "canary"
    trial = begin("canary")
    for _ in range(5_000):
        trial.record(0.5, 0.46, ground="away", at_ms=0)
    assert act(trial) == "return"


def test_broken_guardrails_return_at_once():
    """Whatever the gains, before the first event, and while the judge cannot see."""
    refused = replace(ALL_WELL, refused_by=1)
    assert act(begin(), refused) == "return"
    assert act(play(begin(**SHADOW_ALONE), wins=600), refused) == "return"
    assert act(begin(), replace(refused, store_reachable=False)) == "return"
    assert decide(begin(), refused, 0).why == "guardrail: 1 worker refused to load it"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(ALL_WELL, lag_s=1e4), "10000 s behind"),
        (replace(ALL_WELL, store_reachable=False), "store does not answer"),
        (replace(ALL_WELL, candidate=replace(WELL, coverage=None)), "is not known"),
        (Observations(), "is not known"),
    ],
)
def test_what_is_not_known_holds(seen, words):
    """Neither promoted nor returned by its gains."""
    verdict = decide(play(begin(**SHADOW_ALONE), wins=600), seen, 1_000)
    assert verdict.action == "hold"
    assert words in verdict.why


def test_no_traffic_is_held_for_ever():
    """Time without events is no verdict, not even after max_days; once there are some again, it is undecided."""
    trial = play(begin(**SHADOW_ALONE), wins=600)
    for days in (1, 13, 15, 400):
        verdict = decide(trial, ALL_WELL, days * DAY_MS)
        assert verdict.action == "hold"
        assert "no paired event for" in verdict.why
    trial = play(begin(), losses=600)
    assert act(trial, now_ms=2 * DAY_MS) == "hold"
    trial = play(begin(**SHADOW_ALONE), ties=600, at_ms=15 * DAY_MS)
    verdict = decide(trial, ALL_WELL, 15 * DAY_MS)
    assert verdict.action == "return"
    assert verdict.why.startswith("undecided after 14 days: it wants an e-value of 20")


def test_undecided_also_where_something_stays_unknown():
    """A guardrail whose data never come does not hold a trial for good; and the day of the verdict is exact."""
    blind = replace(ALL_WELL, candidate=replace(WELL, coverage=None))
    trial = play(begin(), ties=600, at_ms=14 * DAY_MS)
    assert act(trial, blind, 14 * DAY_MS) == "hold"
    assert act(trial, blind, 14 * DAY_MS + 1) == "return"
    better = play(begin(**SHADOW_ALONE), ties=600, wins=50, at_ms=15 * DAY_MS)
    assert act(better, now_ms=15 * DAY_MS) == "promote"


def test_a_person_wins():
    """Without auto nothing is done, whatever is seen; and nothing where there is no candidate."""
    for trial in (play(begin(auto=False), wins=600), play(begin(auto=False), losses=600)):
        for seen in (ALL_WELL, replace(ALL_WELL, refused_by=3), Observations()):
            assert decide(trial, seen, 1_000).action == "none"
    assert "resume" in decide(begin(auto=False), ALL_WELL, 0).why
    assert act(play(begin("off"), losses=600)) == "none"


def test_evidence_fits_a_line_of_the_journal():
    """What the journal keeps, as JSON within 1 KiB, with what blocked."""
    verdict = decide(play(begin("canary"), ties=500, wins=50, at_ms=DAY_MS), ALL_WELL, DAY_MS)
    assert verdict.evidence["ndcg@10"] == [0.4545, 0.5]
    assert verdict.evidence["home"] == 550
    assert verdict.evidence["guardrails"] == "all kept"
    mean, low, high = verdict.evidence["diff"]
    assert low < mean == 0.0455 < high
    blind = decide(begin("canary"), Observations(), 0)
    assert blind.evidence["diff"] is None
    assert blind.evidence["guardrails"]["split"] == "missing"
    assert len(json.dumps(blind.evidence)) < 1_024


def test_e_values_for_people():
    """Numbers as they are, and an exponent where they are beyond a million."""
    assert [spell_e_value(log_e) for log_e in (0.0, 3.0, -3.0, 100.0, -1e6)] == [
        "1", "20.1", "0.0498", "1e+43", "1e-434294"
    ]  # fmt: skip


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("play"), st.integers(0, 300), st.integers(0, 300), st.sampled_from(["home", "away", "organic"])
        ),
        st.tuples(st.just("wait"), st.floats(0.0, 80.0)),
        st.tuples(st.just("answers"), st.integers(0, 3_000)),
        st.tuples(st.just("see"), st.sampled_from(["all", "refused", "blind", "away"])),
        st.tuples(st.just("auto"), st.booleans()),
    ),
    max_size=25,
)
SEEN = {
    "all": ALL_WELL,
    "refused": replace(ALL_WELL, refused_by=1),
    "blind": replace(ALL_WELL, lag_s=None),
    "away": replace(ALL_WELL, store_reachable=False),
}


@settings(deadline=None, max_examples=60)
@given(STEPS, st.sampled_from(["canary", "shadow"]))
def test_no_order_of_things_breaks_the_rules(steps, path):
    """One move at a time; none against a person's word; no promotion below any minimum, or past a guardrail."""
    trial = begin(path=path, min_trials=300)
    now_ms, seen, answers, moves = 0, "all", 0, []
    for step in steps:
        match step:
            case ("play", wins, losses, ground):
                play(trial, wins=wins, losses=losses, ground=ground, at_ms=now_ms)
            case ("wait", hours):
                now_ms += int(hours * HOUR_MS)
            case ("answers", more):
                answers += more
            case ("see", what):
                seen = what
            case ("auto", on):
                trial.follow(trial.mode, replace(trial.terms, auto=on), now_ms)
        parts = replace(WELL, answers=answers)
        observed = replace(SEEN[seen], champion=parts, candidate=parts)
        before = json.dumps(trial.to_dict())
        verdict = decide(trial, observed, now_ms)
        assert decide(trial, observed, now_ms) == verdict
        assert json.dumps(trial.to_dict()) == before
        assert verdict.why
        if not trial.terms.auto:
            assert verdict.action == "none"
        if verdict.action in ("canary", "promote"):
            assert seen == "all"
            assert trial.n >= 300
        if verdict.action == "canary":
            assert (trial.mode, path) == ("shadow", "canary")
            trial.follow("canary", trial.terms, now_ms)
            moves.append("canary")
        elif verdict.action == "promote":
            assert trial.better.reaches(0.05)
            if path == "canary":
                assert trial.mode == "canary"
                assert answers >= 1_000
                assert now_ms - trial.canary_since_ms >= 24 * HOUR_MS
        if verdict.action in ("promote", "return"):
            moves.append(verdict.action)
            break
    assert moves in ([], ["canary"], ["return"], ["canary", "return"], ["canary", "promote"]) or (
        path == "shadow" and moves == ["promote"]
    )

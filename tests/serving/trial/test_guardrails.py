"""Each guardrail on both sides of its line, with too little to judge by, and without its data."""

import math
from dataclasses import replace

import numpy as np
import pytest

from service.trial.guardrails import (
    Observations,
    VariantObservations,
    check_guardrails,
    estimate_p99,
    split_log_e_value,
)

WELL = VariantObservations(
    answers=10_000,
    failures=100,
    degraded=100,
    inference_counts=(0, 10_000, 0, 0),
    lists=2_000,
    coverage=400.0,
    popularity=0.7,
    unknown=0.02,
)
BOUNDS_S = (0.005, 0.010, 0.020, 0.100)
ALL_WELL = Observations(
    champion=WELL,
    candidate=WELL,
    inference_bounds_s=BOUNDS_S,
    share=0.5,
    refused_by=0,
    breakers_opened=0,
    lag_s=0.0,
)
"""The champion's 99th percentile is 9.95 ms: the candidate may take 19.925 ms."""


def check(seen, rule, *, silent_s=0.0):
    """The finding of one rule."""
    [finding] = [finding for finding in check_guardrails(seen, "canary", silent_s=silent_s) if finding.rule == rule]
    return finding


def change(**fields):
    """All well, but for some of the candidate's fields."""
    return replace(ALL_WELL, candidate=replace(WELL, **fields))


def test_all_is_kept_where_all_is_well():
    """In canary, and in shadow, where its answers are not looked at."""
    in_canary = check_guardrails(ALL_WELL, "canary", silent_s=0.0)
    in_shadow = check_guardrails(ALL_WELL, "shadow", silent_s=0.0)
    assert {(finding.state, finding.why) for finding in (*in_canary, *in_shadow)} == {("kept", "")}
    rules = [finding.rule for finding in in_canary]
    assert len(set(rules)) == len(rules) == 12
    assert {finding.rule for finding in in_canary} - {finding.rule for finding in in_shadow} == {
        "breaker", "failures", "degraded", "inference time", "split"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "action", "kept", "broken", "words"),
    [
        ("refused", "return", ALL_WELL, replace(ALL_WELL, refused_by=1), "1 worker refused"),
        ("breaker", "return", ALL_WELL, replace(ALL_WELL, breakers_opened=2), "2 times"),
        ("failures", "return", change(failures=200), change(failures=201), "2.0% of its answers failed, 1.0%"),
        ("degraded", "return", change(degraded=200), change(degraded=201), "were degraded"),
        (
            "inference time",
            "return",
            change(inference_counts=(0, 0, 10_000, 0)),
            change(inference_counts=(0, 0, 9_800, 200)),
            "60.0 ms, of the champion's 10.0 ms",
        ),
        ("coverage", "return", change(coverage=200.0), change(coverage=199.0), "199 different items"),
        ("popularity", "return", change(popularity=0.799), change(popularity=0.801), "0.80"),
        ("unknown items", "return", change(unknown=0.069), change(unknown=0.071), "7.1%"),
        ("split", "hold", change(answers=3_400), change(answers=200), "200 of 10,200"),
        ("judge", "hold", replace(ALL_WELL, lag_s=60.0), replace(ALL_WELL, lag_s=61.0), "61 s behind"),
        ("store", "hold", ALL_WELL, replace(ALL_WELL, store_reachable=False), "does not answer"),
    ],
)
def test_both_sides_of_a_rule(rule, action, kept, broken, words):
    """Kept up to the line, broken beyond it, with its one action and a reason."""
    assert check(kept, rule).state == "kept"
    found = check(broken, rule)
    assert (found.state, found.action) == ("broken", action)
    assert words in found.why
    assert [each.rule for each in check_guardrails(broken, "canary", silent_s=0.0) if each.state == "broken"] == [rule]


def test_both_sides_of_silence():
    """An hour without a paired event is borne."""
    assert check(ALL_WELL, "traffic", silent_s=3600.0).state == "kept"
    found = check(ALL_WELL, "traffic", silent_s=3601.0)
    assert (found.state, found.action) == ("broken", "hold")


@pytest.mark.parametrize(
    ("rule", "bad", "enough", "few"),
    [
        ("failures", {"failures": 500}, {"answers": 500}, {"answers": 499}),
        ("degraded", {"degraded": 500}, {"answers": 500}, {"answers": 499}),
        ("inference time", {}, {"inference_counts": (0, 0, 0, 500)}, {"inference_counts": (0, 0, 0, 499)}),
        ("coverage", {"coverage": 1.0}, {"lists": 500}, {"lists": 499}),
        ("popularity", {"popularity": 1.0}, {"lists": 500}, {"lists": 499}),
        ("unknown items", {"unknown": 1.0}, {"lists": 500}, {"lists": 499}),
    ],
)
def test_too_few_decide_nothing(rule, bad, enough, few):
    """From 500 on a rule judges; below it says that it does not."""
    assert check(change(**bad, **enough), rule).state == "broken"
    assert check(change(**bad, **few), rule).state == "too few"


@pytest.mark.parametrize(
    ("rule", "missing"),
    [
        ("refused", replace(ALL_WELL, refused_by=None)),
        ("breaker", replace(ALL_WELL, breakers_opened=None)),
        ("failures", change(failures=None)),
        ("degraded", change(answers=None)),
        ("inference time", change(inference_counts=None)),
        ("inference time", replace(ALL_WELL, inference_bounds_s=())),
        ("coverage", change(coverage=None)),
        ("popularity", change(popularity=None)),
        ("unknown items", change(lists=None)),
        ("split", change(answers=None)),
        ("judge", replace(ALL_WELL, lag_s=None)),
    ],
)
def test_missing_data_is_said(rule, missing):
    """It is not taken for kept."""
    found = check(missing, rule)
    assert found.state == "missing"
    assert found.why.endswith("not known")


def test_nothing_known_is_all_missing_but_the_store():
    """The defaults claim nothing."""
    states = {finding.rule: finding.state for finding in check_guardrails(Observations(), "canary", silent_s=0.0)}
    assert {rule for rule, state in states.items() if state != "missing"} == {"store", "traffic"}


def test_p99_is_linear_within_its_bucket():
    """As Prometheus estimates it; beyond the last bound it is that bound."""
    assert estimate_p99((1.0, 2.0), (100, 0, 0)) == pytest.approx(0.99)
    assert estimate_p99((1.0, 2.0), (98, 2, 0)) == pytest.approx(1.5)
    assert estimate_p99((1.0, 2.0), (0, 0, 5)) == 2.0


def test_split_against_a_sum_over_the_prior():
    """The marginal likelihood is the integral of the likelihood over the prior, done here by a sum."""
    shares = (np.arange(200_000) + 0.5) / 200_000
    a, b = 100 * 0.2, 100 * 0.8
    log_prior = (a - 1) * np.log(shares) + (b - 1) * np.log(1 - shares)
    prior = np.exp(log_prior - log_prior.max())
    prior /= prior.sum()
    for candidate, total in ((20, 100), (45, 100), (3, 100)):
        likelihood = np.exp(candidate * np.log(shares) + (total - candidate) * np.log(1 - shares))
        nearest = min(0.4, max(0.1, candidate / total))
        fixed = nearest**candidate * (1 - nearest) ** (total - candidate)
        expected = math.log((prior * likelihood).sum() / fixed)
        assert split_log_e_value(candidate, total, 0.2) == pytest.approx(expected, abs=1e-6)


def test_split_bears_users_who_ask_much_and_finds_what_is_broken():
    """A third of the users' answers more or less passes at any number; none at all, or all, does not."""
    for total in (100, 10_000, 10_000_000):
        for part in (0.035, 0.05, 0.07):
            assert split_log_e_value(int(part * total), total, 0.05) < math.log(1_000)
    assert split_log_e_value(0, 1_000, 0.05) > math.log(1_000)
    assert split_log_e_value(1_000, 1_000, 0.05) > math.log(1_000)
    assert split_log_e_value(0, 0, 0.05) == 0.0
    assert split_log_e_value(1, 100, 0.0) == math.inf
    assert split_log_e_value(0, 100, 0.0) == 0.0
    assert split_log_e_value(99, 100, 1.0) < math.log(1_000)


def test_split_seldom_errs():
    """Of 300 fair splits looked at after each of 2,000 answers, none reaches 1,000."""
    random = np.random.default_rng(5)
    for _ in range(300):
        candidates = np.cumsum(random.random(2_000) < 0.05)[99::100]
        assert max(
            split_log_e_value(int(candidate), 100 * number, 0.05, tolerance=1.0)
            for number, candidate in enumerate(candidates, 1)
        ) < math.log(1_000)


def test_split_looks_at_the_share_of_now():
    """Answers under a share that stood before say nothing of this one; those under this one do."""
    before = replace(ALL_WELL, candidate=replace(WELL, answers=100), assigned=(1_000, 1_000))
    assert check(before, "split").state == "kept"
    assert check(replace(ALL_WELL, assigned=(1_000, 0)), "split").state == "broken"

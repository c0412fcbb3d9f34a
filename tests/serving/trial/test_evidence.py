"""Evidence against figures worked out otherwise, and its promise: it seldom reaches 20 where there is nothing."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.trial.evidence import BETS, Evidence, Tally, TrialMalformed, Visit, Wager, log_e_value, log_factors

GAINS = st.sampled_from([0.0, *(1 / math.log2(rank + 1) for rank in range(1, 11))])
PAIRS = st.lists(st.tuples(GAINS, GAINS), max_size=40)


def weigh_all(pairs, *, margin=0.0, return_margin=0.1):
    """The evidence of events that are visits of their own."""
    evidence = Evidence()
    for champion, candidate in pairs:
        evidence, _ = evidence.weigh(champion, candidate, margin=margin, return_margin=return_margin)
    return evidence


def compute_e_value(xs):
    """The mean of the wealths, as products and not as sums of logarithms."""
    return math.fsum(math.prod(1 + bet * x for x in xs) for bet in BETS.tolist()) / len(BETS)


def test_bets_are_those_of_the_design():
    """Twelve, each a constant multiple of the one before, from .002 to .9."""
    assert len(BETS) == 12
    assert BETS[[0, -1]] == pytest.approx([0.002, 0.9])
    assert np.diff(np.log(BETS)) == pytest.approx(math.log(450) / 11)


@settings(deadline=None, max_examples=40)
@given(PAIRS)
def test_e_values_are_means_of_products(pairs):
    """Both e-values are those of exact arithmetic."""
    evidence = weigh_all(pairs, margin=0.02)
    better = compute_e_value([candidate - (1 - 0.02) * champion for champion, candidate in pairs])
    worse = compute_e_value([(1 - 0.1) * champion - candidate for champion, candidate in pairs])
    assert evidence.better.log_e == pytest.approx(math.log(better), abs=1e-9)
    assert evidence.worse.log_e == pytest.approx(math.log(worse), abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(PAIRS)
def test_a_visit_is_one_bet_on_its_sum(pairs):
    """However many events it has; and no visit counts for more than one event can."""
    evidence, visit = Evidence(), Visit()
    for champion, candidate in pairs:
        evidence, visit = evidence.weigh(champion, candidate, margin=0.0, return_margin=0.0, visit=visit)
    total = math.fsum(candidate - champion for champion, candidate in pairs)
    clipped = min(1.0, max(-1.0, total))
    assert evidence.better.log_e == pytest.approx(math.log(compute_e_value([clipped])), abs=1e-9)
    assert evidence.worse.log_e == pytest.approx(math.log(compute_e_value([-clipped])), abs=1e-9)
    assert evidence.tally.n == len(pairs)


@settings(deadline=None, max_examples=40)
@given(PAIRS, PAIRS)
def test_evidence_adds(some, others):
    """Two who saw half each know together what one knows who saw all, in any order."""
    together, alone = weigh_all(some) + weigh_all(others), weigh_all(others + some)
    assert together.better.log_wealths == pytest.approx(alone.better.log_wealths, abs=1e-9)
    assert together.worse.log_wealths == pytest.approx(alone.worse.log_wealths, abs=1e-9)
    assert together.tally.n == alone.tally.n
    assert together.tally.means == pytest.approx(alone.tally.means)


@settings(deadline=None, max_examples=40)
@given(PAIRS, GAINS, GAINS)
def test_a_win_is_evidence_for_it(pairs, champion, candidate):
    """An event that the candidate wins raises one e-value and lowers the other; a tie leaves the first as it is."""
    before = weigh_all(pairs, return_margin=0.0)
    after, _ = before.weigh(champion, candidate, margin=0.0, return_margin=0.0)
    gained = after.better.log_e - before.better.log_e
    assert math.copysign(1, gained) == math.copysign(1, candidate - champion) or abs(gained) < 1e-12
    assert (after.worse.log_e - before.worse.log_e) * gained <= 1e-12


def test_it_seldom_reaches_20_where_there_is_nothing():
    """Ville: of 400 trials without a difference, 5 % may ever reach 20, of 1,000 events each; and the mean stays 1."""
    random = np.random.default_rng(17)
    x = random.choice([-0.5, 0.0, 1.0], (400, 1000), p=[0.2, 0.7, 0.1])  # a fair game that is far from symmetric
    paths = log_e_value(np.cumsum(log_factors(x), axis=1))
    assert (paths.max(axis=1) >= math.log(20)).mean() <= 0.05
    # The mean wealth of the smallest bets, whose spread is small, is 1 within chance.
    small = np.exp(log_factors(x)[..., :4].sum(axis=1))
    assert np.abs(small.mean(axis=0) - 1).max() < 4 * (small.std(axis=0) / 20).max()


def test_large_and_small_wealths_neither_overflow_nor_vanish():
    """A million wins, and as many losses."""
    won = Wager(tuple(1e6 * float(value) for value in np.log1p(BETS)))
    lost = Wager(tuple(1e6 * float(value) for value in np.log1p(-BETS)))
    assert won.log_e == pytest.approx(1e6 * math.log(1.9) - math.log(12))
    assert lost.log_e == pytest.approx(1e6 * math.log(0.998) - math.log(12))
    assert won.reaches(1e-300)
    assert not lost.reaches(0.999)


def test_threshold_is_one_over_alpha():
    """20 at alpha = .05."""
    below, above = (Wager((math.log(value),) * len(BETS)) for value in (19.99, 20.01))
    assert not below.reaches(0.05)
    assert above.reaches(0.05)


@pytest.mark.parametrize("gains", [(-0.1, 0.5), (0.5, 1.1), (math.nan, 0.5), (0.5, math.inf)])
def test_only_gains_are_weighed(gains):
    """From 0 to 1, since bets on anything else could lose more than all."""
    with pytest.raises(ValueError, match="from 0 to 1"):
        Evidence().weigh(*gains, margin=0.0, return_margin=0.1)


def test_interval_by_hand():
    """Theorem 2.2 with rho chosen for 2,000 events, worked out with other means; it narrows as events come."""
    tally = Tally(n=2_000, champion=200.0, candidate=240.0, squares=2_000 * (0.13**2 + 0.02**2))
    rho_squared = (-2 * math.log(0.05) + math.log(-2 * math.log(0.05) + 1)) / 2_000
    t = 2_000
    half = 0.13 * math.sqrt(
        2 * (t * rho_squared + 1) / (t**2 * rho_squared) * math.log(math.sqrt(t * rho_squared + 1) / 0.05)
    )
    assert tally.estimate_difference(0.05) == pytest.approx((0.02, 0.02 - half, 0.02 + half))
    # Wider than an interval that may be looked at once, and not by much.
    assert 1.3 < half / (1.96 * 0.13 / math.sqrt(t)) < 1.7
    more = Tally(n=8_000, champion=800.0, candidate=960.0, squares=8_000 * (0.13**2 + 0.02**2))
    interval = more.estimate_difference(0.05)
    assert interval
    assert interval[2] - interval[1] < 2 * half
    assert Tally(n=1).estimate_difference(0.05) is None


def test_estimate_of_events_is_the_power_formula():
    """About 2 ln(12 / alpha) sd^2 / effect^2 events where the bets are small enough for it."""
    random = np.random.default_rng(3)
    x = np.clip(0.01 + 0.13 * random.standard_normal(20_000), -1, 1)
    wager = Wager(tuple(log_factors(x).sum(axis=0).tolist()))
    expected = 2 * math.log(12 / 0.05) * x.var() / x.mean() ** 2
    assert wager.estimate_total(20_000, 0.05) == pytest.approx(expected, rel=0.15)
    assert Wager().estimate_total(0, 0.05) is None
    assert weigh_all([(1.0, 0.0)]).better.estimate_total(1, 0.05) is None


@settings(deadline=None, max_examples=40)
@given(PAIRS)
def test_evidence_survives_json(pairs):
    """To the last bit."""
    evidence = weigh_all(pairs)
    assert Evidence.from_dict(json.loads(json.dumps(evidence.to_dict()))) == evidence


@pytest.mark.parametrize(
    "changes",
    [
        {"better": [0.0] * 11},
        {"better": [0.0] * 11 + ["0"]},
        {"worse": None},
        {"worse": [0.0] * 11 + [math.nan]},
        {"tally": [1, 0.0, 0.0]},
        {"tally": [1.5, 0.0, 0.0, 0.0]},
        {"tally": [-1, 0.0, 0.0, 0.0]},
        {"tally": [1, 0.0, -1.0, 0.0]},
    ],
)
def test_malformed_evidence_is_refused(changes):
    """With the name of the field."""
    with pytest.raises(TrialMalformed, match=next(iter(changes))):
        Evidence.from_dict({**Evidence().to_dict(), **changes})


def test_no_object_is_no_evidence():
    """A list, or nothing."""
    with pytest.raises(TrialMalformed, match="object"):
        Evidence.from_dict([])
    with pytest.raises(TrialMalformed, match="object"):
        Evidence.from_dict(None)

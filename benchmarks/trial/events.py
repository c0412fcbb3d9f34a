"""Paired gains of two models on simulated traffic: visits of one user, a day's cycle, a base rate that drifts.

The next item's rank is log-normal for each model, and a gain is NDCG@10's, 1 / log2(rank + 1) up to rank 10. Both
models meet the same event, so that their ranks go together. A user comes for a visit of several events: part of how
hard an event is, and part of which model suits it, is the visit's. Mean gains and the standard deviation of paired
differences are solved for, by quadrature.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

K = 10
GAINS = 1 / np.log2(np.arange(1, K + 1) + 1)
LOG_RANKS = np.log(np.arange(1, K + 1))
SPREAD = 2.0
"""Standard deviation of the logarithm of a rank."""
VISIT, LONGEST_VISIT = 5.0, 6
"""Events of a visit on average, and the most: the judge takes no more of a user in an hour."""
OF_VISIT = 0.5
"""The share of an event's difficulty that is its visit's."""
DAYS = 14
EVENTS = 20_000
"""Events of a trial, spread over the days."""
CYCLE, DRIFT = 0.5, 0.5
"""How far the logarithm of ranks goes up and down each day, and over the whole trial, up or down."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The paired events of some trials, each array [trials, events]."""

    champion: Floats
    candidate: Floats
    visits: Numbers
    """The number of each event's visit, rising by 1 from 0."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Two models as the simulation knows them; `solve` makes one."""

    champion: float
    """Mean logarithm of the champion's ranks."""
    candidate: float
    correlation: float
    """Of the logarithms of both models' ranks."""
    taste: float
    """The share of what the models do not have in common that is the visit's: its events go the same way."""

    def draw(self, random: np.random.Generator, trials: int, events: int = EVENTS) -> Stream:
        """The first events of trials of EVENTS."""
        visits = draw_visits(random, trials, events)
        time = np.arange(events) / EVENTS
        moved = _cycle(time) + _drift(time) * random.choice([-1.0, 1.0], (trials, 1))
        common = SPREAD * math.sqrt(self.correlation) * _mix(random, visits, OF_VISIT) + moved
        own = SPREAD * math.sqrt(1 - self.correlation)
        champion = to_gains(self.champion + common + own * _mix(random, visits, self.taste))
        candidate = to_gains(self.candidate + common + own * _mix(random, visits, self.taste))
        return Stream(champion, candidate, visits)


@functools.cache
def solve(champion: float, candidate: float, deviation: float, taste: float) -> Case:
    """The case of these mean gains, and of this standard deviation of their paired differences."""
    levels = [brentq(lambda level, mean=mean: _mean(level, GAINS) - mean, -3.0, 12.0) for mean in (champion, candidate)]
    squares = sum(_mean(level, GAINS**2) for level in levels)

    def miss(correlation: float) -> float:
        product = _mean_product(levels[0], levels[1], correlation)
        return squares - 2 * product - (candidate - champion) ** 2 - deviation**2

    return Case(champion=levels[0], candidate=levels[1], correlation=brentq(miss, 0.0, 0.999), taste=taste)


def draw_visits(random: np.random.Generator, trials: int, events: int) -> Numbers:
    """The number of each event's visit: geometric lengths, cut off at LONGEST_VISIT."""
    lengths = np.minimum(random.geometric(1 / VISIT, (trials, events)), LONGEST_VISIT)
    starts = np.zeros((trials, events), np.int64)
    ends = np.cumsum(lengths, axis=1)
    for row, end in zip(starts, ends, strict=True):
        row[end[end < events]] = 1
    return np.asarray(np.cumsum(starts, axis=1), np.int64)


def to_gains(log_ranks: Floats) -> Floats:
    """NDCG@10 of one item at these ranks: a rank is the next whole number above."""
    ranks = np.ceil(np.exp(np.clip(log_ranks, 0.0, 5.0))).astype(np.int64)
    return np.asarray(np.append(GAINS, 0.0)[np.minimum(ranks, K + 1) - 1], np.float64)


def _mix(random: np.random.Generator, visits: Numbers, share: float) -> Floats:
    """Standard normal numbers [trials, events], of whose variance this share is common to a visit."""
    trials, events = visits.shape
    of_visits = np.take_along_axis(random.standard_normal((trials, int(visits.max()) + 1)), visits, axis=1)
    return math.sqrt(share) * of_visits + math.sqrt(1 - share) * random.standard_normal((trials, events))


def _cycle(time: Floats) -> Floats:
    return np.asarray(CYCLE * np.sin(2 * np.pi * DAYS * time), np.float64)


def _drift(time: Floats) -> Floats:
    return DRIFT * (2 * time - 1)


_TIMES = (np.arange(20 * DAYS) + 0.5) / (20 * DAYS)
_MOVED = _cycle(_TIMES) + _drift(_TIMES)
_NODES = np.linspace(-5.0, 5.0, 401)
_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()


def _expect(levels: Floats, spread: float, gains: Floats) -> Floats:
    """The mean gain where the logarithms of ranks are normal around `levels`."""
    below = ndtr((LOG_RANKS - levels[..., None]) / spread)
    return np.asarray(below[..., 0] * gains[0] + np.diff(below, axis=-1) @ gains[1:], np.float64)


def _mean(level: float, gains: Floats) -> float:
    return float(_expect(level + _MOVED, SPREAD, gains).mean())


def _mean_product(champion: float, candidate: float, correlation: float) -> float:
    common = _MOVED[:, None] + SPREAD * math.sqrt(correlation) * _NODES
    own = SPREAD * math.sqrt(1 - correlation)
    product = _expect(champion + common, own, GAINS) * _expect(candidate + common, own, GAINS)
    return float((product @ _WEIGHTS).mean())

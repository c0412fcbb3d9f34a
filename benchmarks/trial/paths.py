"""How evidence grows along simulated trials, all events of all trials at once, and what looks too early."""

import math

import numpy as np

from benchmarks.trial.events import DAYS, EVENTS, Floats, Numbers
from service.trial.evidence import log_e_value, log_factors

NEVER = -1
Z_95 = 1.6449
"""A one-sided t-test at 5 % rejects above it, at thousands of events."""


def follow_e_value(x: Floats, visits: Numbers | None) -> Floats:
    """The logarithm of the e-value after each event, [trials, events]; without visits each event is one bet."""
    rows = visits if visits is not None else np.broadcast_to(np.arange(x.shape[1]), x.shape)
    return np.stack([_follow_one(*row) for row in zip(x, rows, strict=True)])


def _follow_one(x: Floats, visits: Numbers) -> Floats:
    """One trial's path, [events]. Four events in five are ties, x = 0, and change nothing."""
    counts = np.flatnonzero(x)
    if not len(counts):
        return np.zeros(len(x))
    total = np.cumsum(x[counts])
    begins = np.diff(visits[counts], prepend=-1) > 0
    begun = np.maximum.accumulate(np.where(begins, np.arange(len(counts)), 0))
    after = log_factors(np.clip(total - (total - x[counts])[begun], -1.0, 1.0))
    before = np.where(begins[:, None], 0.0, np.roll(after, 1, axis=0))
    path = np.append(0.0, log_e_value(np.cumsum(after - before, axis=0)))
    return np.asarray(path[np.cumsum(x != 0)], np.float64)


def find_first(path: Floats, alpha: float, least: int) -> Numbers:
    """After how many events of each trial, from `least` on, the e-value is 1 / alpha; NEVER where it never is."""
    there = path >= -math.log(alpha)
    there[:, : max(0, least - 1)] = False
    return np.where(there.any(axis=1), there.argmax(axis=1) + 1, NEVER)


def peek_daily(x: Floats) -> Numbers:
    """The same of a t-test on all events so far, looked at once a day, which takes them for independent."""
    looks = np.arange(1, DAYS + 1) * (EVENTS // DAYS)
    looks = looks[looks <= x.shape[1]]
    mean = np.cumsum(x, axis=1)[:, looks - 1] / looks
    variance = np.cumsum(x**2, axis=1)[:, looks - 1] / looks - mean**2
    there = mean > Z_95 * np.sqrt(variance / looks)
    return np.where(there.any(axis=1), looks[there.argmax(axis=1)], NEVER)

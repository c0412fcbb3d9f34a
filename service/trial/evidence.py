"""Evidence that may be looked at after every event: e-values from constant bets, and intervals for display.

Whoever doubts a hypothesis bets against it, a fixed share of the wealth on each event. Where "x is not above 0 on
average, given the past" holds, no bet gains on average: the wealth is a non-negative supermartingale, and by Ville's
inequality it ever reaches 1 / alpha with a chance of at most alpha (Ville 1939; Waudby-Smith & Ramdas, "Estimating
means of bounded random variables by betting", arXiv 2010.09686). So one may look as often as one likes. The x need
neither be independent nor come from one distribution, nor have a known variance.

"Given the past" is what a user's visit breaks: whoever met one event of it can guess at the next, since the model that
suits a user suits the whole visit. So a visit is one bet, on the sum of its events; docs/decisions/0015 has what was
measured.

The wealths of constant bets commute and multiply: what several processes saw is put together by adding logarithms.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from model.contract.manifest import is_count, is_number

BETS: Final = np.geomspace(0.002, 0.9, 12)
"""Shares of the wealth that are bet. No loss of an event, at most 1, takes more than nine tenths of it."""
TUNED_FOR = 2_000
"""The number of events at which the interval is narrowest for its coverage."""


class TrialMalformed(ValueError):
    """A document is not what `to_dict` writes. The message says what is wrong."""


def log_factors(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """By what each bet multiplies its wealth: log(1 + bet x) of [...] values from -1 to 1, as [..., bets]."""
    return np.log1p(np.multiply.outer(x, BETS))


def log_e_value(log_wealths: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of the mean wealth, [...] from [..., bets]: an e-value, since a mean of e-values is one."""
    highest = log_wealths.max(axis=-1)
    spread = np.exp(log_wealths - highest[..., None]).mean(axis=-1)
    return np.asarray(highest + np.log(spread), np.float64)


@dataclass(frozen=True, slots=True)
class Wager:
    """The wealths of all bets that x is above 0 on average, as logarithms."""

    log_wealths: tuple[float, ...] = (0.0,) * len(BETS)

    def bet(self, x: float, before: float = 0.0) -> "Wager":
        """The wealths after one more event, `x` from -1 to 1, of a visit whose events so far sum up to `before`.

        The bet is on the visit's sum, cut off at -1 and 1: no visit alone decides.
        """
        old, new = log_factors(np.clip([before, before + x], -1.0, 1.0))
        return Wager(tuple((np.asarray(self.log_wealths) + new - old).tolist()))

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value. A float: the e-value itself may be too large for one."""
        return float(log_e_value(np.asarray(self.log_wealths)))

    def reaches(self, alpha: float) -> bool:
        """Whether the e-value is at least 1 / alpha."""
        return self.log_e >= -math.log(alpha)

    def estimate_total(self, n: int, alpha: float) -> float | None:
        """About how many events reach 1 / alpha where all go as the `n` so far; None where they lead nowhere.

        The best bet's logarithm grows steadily; the mean is below it by the logarithm of the number of bets at most.
        """
        best = max(self.log_wealths)
        return n * math.log(len(BETS) / alpha) / best if n and best > 0 else None

    def __add__(self, other: "Wager") -> "Wager":
        """What both saw, as if one had seen it."""
        return Wager(tuple(mine + its for mine, its in zip(self.log_wealths, other.log_wealths, strict=True)))


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums of paired gains, for means and an interval of their difference."""

    n: int = 0
    champion: float = 0.0
    candidate: float = 0.0
    squares: float = 0.0
    """Sum of squared differences."""

    def count(self, champion_gain: float, candidate_gain: float) -> "Tally":
        """The sums after one more event."""
        return Tally(
            self.n + 1,
            self.champion + champion_gain,
            self.candidate + candidate_gain,
            self.squares + (candidate_gain - champion_gain) ** 2,
        )

    @property
    def means(self) -> tuple[float, float]:
        """The mean gains of champion and candidate; 0 without events."""
        return (self.champion / self.n, self.candidate / self.n) if self.n else (0.0, 0.0)

    def estimate_difference(self, alpha: float) -> tuple[float, float, float] | None:
        """The mean difference, candidate less champion, and its asymptotic confidence sequence; None below 2 events.

        Theorem 2.2 of Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, "Time-uniform central limit theory and asymptotic
        confidence sequences" (arXiv 2103.06476): for display, since it holds for large n only. Verdicts use e-values.
        """
        if self.n < 2:
            return None
        mean = (self.candidate - self.champion) / self.n
        variance = max(0.0, self.squares / self.n - mean**2)
        peak = -2 * math.log(alpha)
        scaled = self.n * (peak + math.log(peak + 1)) / TUNED_FOR  # n rho^2
        half = math.sqrt(
            variance * 2 * (scaled + 1) / (self.n * scaled) * (0.5 * math.log(scaled + 1) - math.log(alpha))
        )
        return mean, mean - half, mean + half

    def __add__(self, other: "Tally") -> "Tally":
        """What both saw."""
        return Tally(
            self.n + other.n,
            self.champion + other.champion,
            self.candidate + other.candidate,
            self.squares + other.squares,
        )


@dataclass(frozen=True, slots=True)
class Visit:
    """What the events of one user's visit sum up to so far, for either wager."""

    better: float = 0.0
    worse: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What paired gains of one kind of ground say, for and against the candidate."""

    better: Wager = Wager()
    """Bets on `c - (1 - margin) h` being above 0: the candidate's gain c, the champion's h."""
    worse: Wager = Wager()
    """Bets on `(1 - return_margin) h - c` being above 0."""
    tally: Tally = Tally()

    def weigh(
        self,
        champion_gain: float,
        candidate_gain: float,
        *,
        margin: float,
        return_margin: float,
        visit: Visit = Visit(),
    ) -> tuple["Evidence", Visit]:
        """The evidence after one more event of a visit, and the visit. Gains are from 0 to 1, else ValueError."""
        if not (0 <= champion_gain <= 1 and 0 <= candidate_gain <= 1):
            raise ValueError("gains are numbers from 0 to 1")
        better = candidate_gain - (1 - margin) * champion_gain
        worse = (1 - return_margin) * champion_gain - candidate_gain
        after = Evidence(
            self.better.bet(better, visit.better),
            self.worse.bet(worse, visit.worse),
            self.tally.count(champion_gain, candidate_gain),
        )
        return after, Visit(visit.better + better, visit.worse + worse)

    def __add__(self, other: "Evidence") -> "Evidence":
        """What both saw."""
        return Evidence(self.better + other.better, self.worse + other.worse, self.tally + other.tally)

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON knows it."""
        tally = self.tally
        return {
            "better": list(self.better.log_wealths),
            "worse": list(self.worse.log_wealths),
            "tally": [tally.n, tally.champion, tally.candidate, tally.squares],
        }

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Read what `to_dict` wrote. Raises TrialMalformed."""
        if not isinstance(document, Mapping):
            raise TrialMalformed("evidence must be an object")
        tally = _read_numbers(document.get("tally"), 4, "tally")
        if not is_count(tally[0], least=0) or min(tally) < 0:
            raise TrialMalformed("'tally' must begin with a whole number, and hold none below 0")
        better, worse = (
            Wager(tuple(float(value) for value in _read_numbers(document.get(name), len(BETS), name)))
            for name in ("better", "worse")
        )
        return cls(better, worse, Tally(int(tally[0]), *(float(value) for value in tally[1:])))


def _read_numbers(value: object, length: int, name: str) -> list[float]:
    if not isinstance(value, list) or len(value) != length or not all(map(is_number, value)):
        raise TrialMalformed(f"{name!r} must be {length} numbers")
    return value

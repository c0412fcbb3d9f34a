"""What a model that counts ranks by, as a run keeps it and a graph holds it: popularity, and what leads to what.

Popularity, a Markov chain, sequential rules and similar items are one thing: the newest items of a history lead to
others, and popularity decides among items that nothing leads to. Symbols: V items, E rules, r_j what the rules of a
history say of item j in sum.

    score_j = prior_j                                        where no rule leads to j
            = 1 + log(1 + r_j / FLOOR) + TIE * prior_j       where some do, the prior then being below 1

The logarithm keeps the order of the sums and brings them, 1e-12 to 1e4 of them, to what float32 can tell apart.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.contract.npy import decode_arrays, encode_arrays
from model.contract.rules import Rules

FLOOR = 1e-6
"""Sums far below it are nearer to each other than the others: they come of items forty places back."""
TIE = 1e-4
"""How much popularity counts among items that rules name: it decides where the sums are as good as equal."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Counts that rank all items after any history."""

    prior: NDArray[np.float32]
    """(V), at least 0, and below 1 where there are rules."""
    rules: Rules
    """Without any where popularity is all."""
    distinct: bool = False
    """Whether an item that stands twice among the newest is asked once. Then all of them are asked alike: decay 1."""

    @property
    def item_count(self) -> int:
        """V."""
        return len(self.prior)

    @property
    def max_length(self) -> int:
        """Tokens that it reads, [mask] among them."""
        return 1 + (self.rules.window if len(self.rules.followers) else 1)

    def score(self, history: NDArray[np.int32]) -> NDArray[np.float64]:
        """Score all items (V) after a history of item indexes, oldest first."""
        newest = history[-self.rules.window :]
        sums = self.rules.score(np.unique(newest) if self.distinct else newest)
        prior = self.prior.astype(np.float64)
        scores: NDArray[np.float64] = np.where(sums > 0, 1 + np.log1p(sums / FLOOR) + TIE * prior, prior)
        return scores

    def to_bytes(self) -> bytes:
        """The content of counted.npy in a run."""
        return encode_arrays(self.prior, np.array([int(self.distinct)])) + self.rules.to_bytes()

    @classmethod
    def from_bytes(cls, content: bytes, item_count: int) -> "Counted":
        """What `to_bytes` wrote, for so many items. Raises ValueError."""
        prior, distinct, *rest = decode_arrays(content, 6)
        rules = Rules.from_bytes(encode_arrays(*rest), item_count)
        if (prior.ndim, prior.dtype.name, len(prior)) != (1, "float32", item_count) or not (prior >= 0).all():
            raise ValueError("no popularity of every item")
        if not np.isfinite(prior).all() or (len(rules.followers) and not (prior < 1).all()):
            raise ValueError("a popularity beyond what it may be")
        if distinct.shape != (1,) or distinct.item() not in (0, 1) or (distinct.item() and rules.decay != 1):
            raise ValueError("no 0 or 1 of whether items are asked once")
        return cls(prior=prior, rules=rules, distinct=bool(distinct.item()))


def make_no_rules(item_count: int) -> Rules:
    """Rules of so many items, of which none leads anywhere."""
    nothing = np.zeros(0, dtype=np.int32)
    starts = np.zeros(item_count + 2, dtype=np.int64)
    return Rules(starts=starts, followers=nothing, weights=nothing.astype(np.float32), decay=1.0, window=1)

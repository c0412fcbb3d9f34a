"""Sequential rules, as a bundle holds them: what followed each item. What the trainer measures as `rules`.

Symbols: V items, E rules. An item of a history has its rules' weights times `decay` for each newer item; the newest
`window` count (Ludewig & Jannach 2018, "SR"). How rules are weighed: training/baselines/rules.py.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.contract.npy import decode_arrays, encode_arrays

DECAY, WINDOW = 0.7, 50
"""Defaults, chosen on validation events of ML-1M and Beauty."""
BELOW_RULES = 1e-12
"""Less than the least weight of a rule: 0.7 ** 49 / 20 over the square root of a million."""
FOLLOWERS = 200
"""Maximum rules of one item in a bundle, the weightiest ones."""
MOST_RULES = 2**24
"""Maximum rules in a bundle: 128 MiB."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What followed what, and how much is asked of it."""

    starts: NDArray[np.int64]
    """(V + 2): what followed the item of index i is followers[starts[i]:starts[i + 1]]. Nothing follows PAD, 0."""
    followers: NDArray[np.int32]
    """(E) item indexes, those of one item by falling weight."""
    weights: NDArray[np.float32]
    """(E) how often and how soon, above 0."""
    decay: float = DECAY
    window: int = WINDOW

    @property
    def item_count(self) -> int:
        """V."""
        return len(self.starts) - 2

    def score(self, history: NDArray[np.int32]) -> NDArray[np.float64]:
        """Score all items (V) after a history of item indexes, oldest first. An item that no rule names has 0."""
        newest = history[: -self.window - 1 : -1]
        lengths = self.starts[newest + 1] - self.starts[newest]
        of = np.repeat(np.arange(len(newest)), lengths)
        places = np.arange(len(of)) + (self.starts[newest] - np.cumsum(lengths) + lengths)[of]
        shares = self.weights[places] * self.decay**of
        scores = np.bincount(self.followers[places], weights=shares, minlength=self.item_count + 1)[1:]
        return scores.astype(np.float64, copy=False)  # without any rule they are whole numbers

    def to_bytes(self) -> bytes:
        """The content of rules.npy."""
        return encode_arrays(self.starts, self.followers, self.weights, np.array([self.decay, self.window]))

    @classmethod
    def from_bytes(cls, content: bytes, item_count: int) -> "Rules":
        """What `to_bytes` wrote, for so many items. Raises ValueError."""
        starts, followers, weights, numbers = decode_arrays(content, 4)
        kinds = [(array.ndim, array.dtype.name) for array in (starts, followers, weights, numbers)]
        if kinds != [(1, "int64"), (1, "int32"), (1, "float32"), (1, "float64")] or len(numbers) != 2:
            raise ValueError("not starts, followers, weights and numbers")
        if len(starts) != item_count + 2 or starts[1] != 0 or starts[0] != 0 or (np.diff(starts) < 0).any():
            raise ValueError("rules that do not lie one item after the other")
        if not starts[-1] == len(followers) == len(weights):
            raise ValueError("rules that do not lie one item after the other")
        if len(followers) and (followers.min() < 1 or followers.max() > item_count):
            raise ValueError("rules that lead to no item")
        if not np.isfinite(weights).all() or not (weights > 0).all():
            raise ValueError("a weight that is no number above 0")
        decay, window = numbers.tolist()
        if not 0 < decay <= 1 or not 1 <= window <= MOST_RULES or window != int(window):
            raise ValueError("a decay beyond 0 to 1, or a window of no items")
        return cls(starts=starts, followers=followers, weights=weights, decay=decay, window=int(window))


def share_below_rules(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Less than any rule, and in the order of popularity (V): what decides among items that no rule names."""
    shares: NDArray[np.float64] = counts / (counts.sum() + 1) * BELOW_RULES
    return shares

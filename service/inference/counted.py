"""Rankers that count instead of learning, by what the bundle holds: its most similar sessions, or sequential rules."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.contract.query import Question
from model.contract.rules import Rules, share_below_rules
from model.contract.sessions import Sessions, share_popularity


@dataclass(frozen=True)
class Counted:
    """What scores all items after a history, and the popularity that ranks items which it does not score."""

    name: Literal["neighbours", "rules"]
    source: Sessions | Rules
    shares: NDArray[np.float64]
    """(V), less than any score."""
    _last: list[tuple[NDArray[np.int32], NDArray[np.float64]]] = field(default_factory=list, compare=False, repr=False)
    """The last history and the scores (V) by it: all questions of a request with rules share one."""

    @classmethod
    def from_sessions(cls, sessions: Sessions, counts: NDArray[np.int64]) -> "Counted":
        """Take sessions and the items' counts (V)."""
        sessions.score(np.ones(1, dtype=np.int32))  # builds its index now, not while the engine fails
        return cls("neighbours", sessions, share_popularity(counts))

    @classmethod
    def from_rules(cls, rules: Rules, counts: NDArray[np.int64]) -> "Counted":
        """Take rules and the items' counts (V)."""
        return cls("rules", rules, share_below_rules(counts))

    def rank(self, question: Question) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The indexes (k) and scores (k) of the best items, ties by item id. Takes about a millisecond."""
        scores = self._score(question.history)
        pool = np.arange(1, len(scores) + 1) if question.candidates is None else np.unique(question.candidates)
        if question.allowed is not None:
            pool = pool[question.allowed.mask[pool]]
        pool = pool[~np.isin(pool, question.exclude)]
        best = pool[np.argsort(-scores[pool - 1], kind="stable")[: question.k]]
        return best.astype(np.int32), scores[best - 1]

    def _score(self, history: NDArray[np.int32]) -> NDArray[np.float64]:
        for known, scores in self._last:
            if known is history:
                return scores
        scores = self.source.score(history) + self.shares
        self._last[:] = [(history, scores)]
        return scores

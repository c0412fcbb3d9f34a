"""Nearest-neighbour fallback between model and popular items: ranks by the bundle's most similar sessions."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from model.contract.query import Question
from model.contract.sessions import Sessions, share_popularity


@dataclass(frozen=True)
class Neighbours:
    """The bundle's sessions, and the popularity that ranks items in none of them."""

    sessions: Sessions
    shares: NDArray[np.float64]
    """(V), less than any score."""
    _last: list[tuple[NDArray[np.int32], NDArray[np.float64]]] = field(default_factory=list, compare=False, repr=False)
    """The last history and the scores (V) by it: all questions of a request with rules share one."""

    @classmethod
    def from_sessions(cls, sessions: Sessions, counts: NDArray[np.int64]) -> "Neighbours":
        """Take sessions and the items' counts (V)."""
        sessions.score(np.ones(1, dtype=np.int32))  # builds its index now, not while the engine fails
        return cls(sessions, share_popularity(counts))

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
        scores = self.sessions.score(history) + self.shares
        self._last[:] = [(history, scores)]
        return scores

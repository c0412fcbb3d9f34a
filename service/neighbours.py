"""The rung between model and popular items: what the sessions most like a history hold, if the bundle carries any."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.contract.question import Question
from model.contract.sessions import Sessions, share_popularity


@dataclass(frozen=True)
class Neighbours:
    """The bundle's sessions, and what decides among items that none of them holds."""

    sessions: Sessions
    shares: NDArray[np.float64]
    """(V), less than any score."""

    @classmethod
    def from_sessions(cls, sessions: Sessions, counts: NDArray[np.int64]) -> "Neighbours":
        """Take sessions and the items' counts (V)."""
        sessions.score(np.ones(1, dtype=np.int32))  # what it finds by item is made now, not while the engine fails
        return cls(sessions, share_popularity(counts))

    def rank(self, question: Question) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The indexes and scores of the k best items, equal ones by item id. Takes about a millisecond."""
        scores = self.sessions.score(question.history) + self.shares
        pool = np.arange(1, len(scores) + 1) if question.candidates is None else np.unique(question.candidates)
        pool = pool[~np.isin(pool, question.exclude)]
        best = pool[np.argsort(-scores[pool - 1], kind="stable")[: question.k]]
        return best.astype(np.int32), scores[best - 1]

"""What a model gains from the history that it is asked about: its NDCG@10 with it, and with another user's instead.

A log whose items are shuffled has nothing to learn but how popular items are. A model that has learned this is ahead
of a champion that knows an older popularity, on questions from that log; whose history it is asked about makes no
difference to it. So what the true history adds tells the two apart, whatever the champion and however small the log
(it is the importance of a feature by permutation: Breiman 2001, section 10).

Both times the items of both histories are excluded, so that the target stands among the same items. It drops out of
the other user's history, since models do not recommend what they have just read.
"""

import numpy as np
from numpy.typing import NDArray

from training.data.interactions import Log
from training.data.split import Questions
from training.evaluation.metrics import PRIMARY_METRIC
from training.retrain.offline_trial import Graph, answer_questions

_SEED = 12345


def measure_history_gain(
    graph: Graph, log: Log, questions: Questions, owners: NDArray[np.int64]
) -> NDArray[np.float64]:
    """NDCG@10 of each question (B) with its history minus that with another user's; 0 where only one user asks."""
    lenders = find_lenders(owners)
    if lenders is None:
        return np.zeros(len(questions))
    borrowed = questions.histories.select(lenders)
    own = answer_questions(graph, log, questions, excluded=borrowed)
    other = answer_questions(graph, log, Questions(borrowed, questions.targets), excluded=questions.histories)
    return own[PRIMARY_METRIC] - other[PRIMARY_METRIC]


def find_lenders(owners: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """For each question (B) a random one of another user, the same at every call; None where there is but one user."""
    users, rows, counts = np.unique(owners, return_inverse=True, return_counts=True)
    if len(users) < 2:
        return None
    by_user = np.argsort(rows, kind="stable")
    first, own = (np.cumsum(counts) - counts)[rows], counts[rows]
    drawn = np.random.default_rng(_SEED).integers(0, len(owners) - own)
    return by_user[drawn + np.where(drawn >= first, own, 0)]

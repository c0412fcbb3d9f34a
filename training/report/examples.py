"""Users drawn at random: what they did, what the model lists for them, and what came next."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.histories import Histories
from training.data.interactions import Log
from training.data.split import Questions
from training.evaluation.metrics import LIST_LENGTH, UNLISTED
from training.evaluation.protocol import SEED
from training.evaluation.ranking import Scorer, rank_targets

USERS = 10
_LAST = 12
"""Newest events of each user that are shown."""


def choose_examples(scorer: Scorer, log: Log, questions: Questions, *, held_out: bool) -> list[dict[str, Any]]:
    """Ten users by id, the same ones each time. Unless `held_out` the targets mean nothing, and nothing came next.

    `place` counts from 1; it is None where the item that came next was in the history, and so is no candidate.
    """
    chosen = draw_some(questions, USERS)
    ranks = rank_targets(scorer, chosen, K=LIST_LENGTH)
    owners = log.histories.find_owners(chosen.histories)
    return [
        {
            "user": log.user_ids[owners[row]],
            "events": len(history),
            "history": _name_items(log, history[-_LAST:]),
            "list": _name_items(log, ranks.lists[row]),
            "next": _name_items(log, chosen.targets[row : row + 1])[0] if held_out else None,
            "place": _find_place(ranks.greater[row], ranks.ties[row]) if held_out else None,
        }
        for row, history in enumerate(chosen.histories)
    ]


def sample_lists(scorer: Scorer, questions: Questions, most: int) -> NDArray[np.int32]:
    """The lists (B, K) of at most so many users, the same random ones each time."""
    return rank_targets(scorer, draw_some(questions, most), K=LIST_LENGTH).lists


def ask_all(histories: Histories) -> Questions:
    """A question for each history whose target means nothing: lists do not depend on it."""
    return Questions(histories, np.ones(len(histories), dtype=np.int32))


def draw_some(questions: Questions, most: int) -> Questions:
    """At most so many of the questions, the same random ones each time, in their order."""
    rows = np.random.default_rng(SEED).permutation(len(questions))[:most]
    return questions.select(np.sort(rows))


def _find_place(greater: np.int64, ties: np.int64) -> float | None:
    return None if greater >= UNLISTED else float(greater) + 1 + float(ties) / 2


def _name_items(log: Log, indexes: NDArray[np.int32]) -> list[str]:
    return list(log.vocabulary.decode(indexes[indexes > 0].tolist()))

"""A question to a graph, from external ids to the graph's inputs, and its answer back. Trainer and server share it."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.contract.sequence import align_right, encode_histories
from model.contract.vocabulary import Vocabulary

INPUTS = ("item_ids", "lengths", "exclude", "candidates", "k")
OUTPUTS = ("indexes", "scores")
"""The graph's signature by name (model/export.py has the shapes)."""


class Question(NamedTuple):
    """One question in indexes: the known history, what never to answer, what alone to answer, and how many."""

    history: NDArray[np.int32]
    exclude: NDArray[np.int32]
    candidates: NDArray[np.int32] | None
    k: int


class Answer(NamedTuple):
    """Item ids, best first, and their scores."""

    item_ids: list[str]
    scores: list[float]


def encode_question(
    vocabulary: Vocabulary,
    *,
    history: Iterable[str],
    exclude: Iterable[str],
    candidates: Collection[str] | None,
    k: int,
    exclude_history: bool = False,
) -> Question:
    """Turn ids into indexes, the history's oldest first. Unknown items drop out; `k` is cut to the catalogue.

    No candidates (None) mean no restriction, while candidates that are all unknown leave nothing to rank.
    """
    known = vocabulary.encode_known(history)
    excluded = vocabulary.encode_known(exclude)
    return Question(
        history=known,
        exclude=np.concatenate([excluded, known]) if exclude_history else excluded,
        candidates=None if candidates is None else vocabulary.encode_known(candidates),
        k=min(k, len(vocabulary)),
    )


def stack_questions(questions: Sequence[Question], *, max_length: int, mask_index: int) -> dict[str, NDArray[Any]]:
    """The graph's inputs for B questions (model/export.py), `k` being the largest asked for."""
    item_ids, lengths = encode_histories(
        [question.history for question in questions], max_length=max_length, mask_index=mask_index
    )
    return {
        "item_ids": item_ids,
        "lengths": lengths,
        "exclude": align_right([question.exclude for question in questions]).item_ids,
        "candidates": align_right([_restrict(question.candidates, mask_index) for question in questions]).item_ids,
        "k": np.array([max(question.k for question in questions)], dtype=np.int64),
    }


def decode_answer(vocabulary: Vocabulary, indexes: NDArray[np.int64], scores: NDArray[np.float32], *, k: int) -> Answer:
    """One row of the graph's output as the first `k` ids and scores, fewer where less was left to rank."""
    indexes, scores = indexes[:k], scores[:k]
    kept = scores != -np.inf
    return Answer(vocabulary.decode(indexes[kept].tolist()), scores[kept].tolist())


def _restrict(candidates: NDArray[np.int32] | None, mask_index: int) -> NDArray[np.int32] | tuple[int, ...]:
    """A row of PAD alone would not restrict; [mask], which is never an answer, restricts to nothing."""
    if candidates is None:
        return ()
    return candidates if len(candidates) else (mask_index,)

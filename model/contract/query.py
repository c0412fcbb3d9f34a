"""A question to a graph, from external ids to the graph's inputs, and its answer back. Trainer and server share it."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.contract.allowed import Allowed
from model.contract.event_inputs import ABSENT, Events, encode_events, stack_events
from model.contract.sequence import align_right, encode_histories
from model.contract.vocabulary import UNKNOWN, Vocabulary

INPUTS = ("item_ids", "lengths", "exclude", "candidates", "k")
OUTPUTS = ("indexes", "scores")
"""The graph's signature by name (model/export/graph.py has the shapes). A manifest may add event_inputs.py."""
RANKED, SCORED, ALLOWED, ALLOWED_ROWS = OPTIONAL = ("ranked", "scored_candidates", "allowed", "allowed_rows")
CANDIDATE_SCORES = "candidate_scores"
"""Inputs that may be left out, and an output of theirs. Graphs of earlier versions have none of them."""


def is_signature(names: Collection[str]) -> bool:
    """Tell whether a graph of these inputs can be asked: all of INPUTS, and no others but optional ones."""
    return set(INPUTS) <= set(names) <= {*INPUTS, *ABSENT}


class Question(NamedTuple):
    """One question in indexes: the known history, what never to answer, what alone to answer, and how many.

    And what is known of the history's events, by optional input, if anything; which items may be answered at all, if
    not all of them (questions of one filter share one such mask); and when it is asked, in epoch milliseconds, 0 where
    nobody knows.
    """

    history: NDArray[np.int32]
    exclude: NDArray[np.int32]
    candidates: NDArray[np.int32] | None
    k: int
    events: Mapping[str, NDArray[Any]] | None = None
    allowed: Allowed | None = None
    asked_ms: int = 0


class Answer(NamedTuple):
    """Item ids, best first, and their scores."""

    item_ids: list[str]
    scores: list[float]


def encode_question(
    vocabulary: Vocabulary,
    *,
    history: Iterable[str],
    exclude: Collection[str],
    candidates: Collection[str] | None,
    k: int,
    exclude_history: bool = False,
    events: Events | None = None,
    event_types: Sequence[str] = (),
    allowed: Allowed | None = None,
    asked_ms: int = 0,
) -> Question:
    """Turn ids into indexes, the history's oldest first. Unknown items drop out; `k` is cut to the catalogue.

    No candidates (None) mean no restriction, while candidates that are all unknown leave nothing to rank. `events` are
    what came with each item of the history, if the graph wants to know. Raises ValueError for a mask over another
    number of items than the vocabulary has.
    """
    if allowed is not None and allowed.item_count != len(vocabulary):
        raise ValueError("a mask over another vocabulary")
    features: dict[str, NDArray[Any]] | None = None
    if events is None:
        known = vocabulary.encode_known(history)
    else:
        indexes = vocabulary.encode(history)
        known = indexes[indexes != UNKNOWN]
        features = {name: column[indexes != UNKNOWN] for name, column in encode_events(events, event_types).items()}
    excluded = vocabulary.encode_known(exclude) if len(exclude) else known[:0]
    if exclude_history:
        excluded = np.concatenate([excluded, known]) if len(excluded) else known
    return Question(
        history=known,
        exclude=excluded,
        candidates=None if candidates is None else vocabulary.encode_known(candidates),
        k=min(k, len(vocabulary)),
        events=features,
        allowed=allowed,
        asked_ms=asked_ms,
    )


def stack_questions(
    questions: Sequence[Question], *, max_length: int, mask_index: int, inputs: Collection[str] = INPUTS
) -> dict[str, NDArray[Any]]:
    """The graph's inputs for B questions (model/export/graph.py), `k` being the largest asked for.

    Of those of events the ones that `inputs` name; ALLOWED and ALLOWED_ROWS where a question has a mask.
    """
    item_ids, lengths = encode_histories(
        [question.history for question in questions], max_length=max_length, mask_index=mask_index
    )
    return {
        "item_ids": item_ids,
        "lengths": lengths,
        "exclude": align_right([question.exclude for question in questions]).item_ids,
        "candidates": align_right([_restrict(question.candidates, mask_index) for question in questions]).item_ids,
        "k": np.array([max(question.k for question in questions)], dtype=np.int64),
        **{
            name: stack_events(
                name,
                [None if question.events is None else question.events[name] for question in questions],
                lengths,
                item_ids.shape[1],
                asked_ms=[question.asked_ms for question in questions],
            )
            for name in ABSENT
            if name in inputs
        },
        **_stack_allowed(questions),
    }


def _stack_allowed(questions: Sequence[Question]) -> dict[str, NDArray[Any]]:
    """The masks of the questions that have one, and the rows of these; nothing without any."""
    found = [(row, question.allowed.bits) for row, question in enumerate(questions) if question.allowed is not None]
    if not found:
        return {}
    return {
        ALLOWED: np.stack([bits for _, bits in found]).astype(np.int32),
        ALLOWED_ROWS: np.array([[row] for row, _ in found], dtype=np.int64),
    }


def select_rows(feed: Mapping[str, NDArray[Any]], rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
    """The inputs for some questions of a batch, without the columns that are padding in all of them."""
    whole = ("k", *OPTIONAL)
    picked = {name: value if name in whole else value[rows] for name, value in feed.items()}
    T = int(picked["lengths"].max())
    picked |= {name: picked[name][:, -T:] for name in ("item_ids", *ABSENT) if name in picked}
    if ALLOWED in feed:
        places = np.full(len(feed["lengths"]), -1)
        places[rows] = np.arange(len(rows))
        moved = places[feed[ALLOWED_ROWS]]
        kept = moved[:, 0] >= 0
        picked |= {ALLOWED: feed[ALLOWED][kept], ALLOWED_ROWS: moved[kept]}
    return picked


def skip_ranking(feed: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The same inputs for CANDIDATE_SCORES alone: no row is ranked, so that no item but the candidates is scored.

    Rows of candidates are aligned to the right, as `stack_questions` has them, and so are their scores.
    """
    return {
        **feed,
        "exclude": feed["exclude"][:0],
        "candidates": feed["candidates"][:0],
        RANKED: np.zeros(1, dtype=np.int64),
        SCORED: feed["candidates"],
    }


def decode_answers(
    vocabulary: Vocabulary, questions: Sequence[Question], indexes: NDArray[np.int64], scores: NDArray[np.float32]
) -> list[Answer]:
    """The graph's output (B, K) as ids and scores: the first `k` of each question, fewer where less was left."""
    return [
        _decode(vocabulary, row[: question.k], of_row[: question.k])
        for question, row, of_row in zip(questions, indexes.tolist(), scores.tolist(), strict=True)
    ]


def _decode(vocabulary: Vocabulary, indexes: list[int], scores: list[float]) -> Answer:
    if -math.inf in scores:
        kept = [place for place, score in enumerate(scores) if score != -math.inf]
        indexes, scores = [indexes[place] for place in kept], [scores[place] for place in kept]
    return Answer(vocabulary.decode(indexes), scores)


def _restrict(candidates: NDArray[np.int32] | None, mask_index: int) -> NDArray[np.int32] | tuple[int, ...]:
    """A row of PAD alone would not restrict; [mask], which is never an answer, restricts to nothing."""
    if candidates is None:
        return ()
    return candidates if len(candidates) else (mask_index,)

"""Questions in ids to the graph's inputs, and its output back to ids."""

import numpy as np
import pytest

from model.contract.question import decode_answer, encode_question, stack_questions
from model.contract.vocabulary import PAD, Vocabulary

VOCABULARY = Vocabulary(["a", "b", "c", "d"])
MASK = VOCABULARY.mask_index


def encode(**changes):
    """One question about VOCABULARY."""
    return encode_question(VOCABULARY, **{"history": ["a"], "exclude": [], "candidates": None, "k": 2, **changes})


def stack(*questions):
    """The feed of several questions."""
    return stack_questions(questions, max_length=5, mask_index=MASK)


def test_feed_has_the_graphs_types():
    """Every input but k is int32, k is one int64."""
    feed = stack(encode())
    assert {name: array.dtype for name, array in feed.items() if name != "k"} == dict.fromkeys(
        ("item_ids", "lengths", "exclude", "candidates"), np.dtype(np.int32)
    )
    assert feed["k"].dtype == np.int64
    assert feed["k"].shape == (1,)


def test_unknown_items_are_skipped():
    """Unknown items leave histories and exclusions as if they were not there."""
    feed = stack(encode(history=["x", "b", "y", "a"], exclude=["z", "d"]))
    assert feed["item_ids"].tolist() == [[2, 1, MASK]]
    assert feed["exclude"].tolist() == [[4]]


@pytest.mark.parametrize(("also", "excluded"), [(True, [3, 1, 2, 1, 2, 1]), (False, [3])])
def test_whole_history_is_excluded_when_asked(also, excluded):
    """`exclude_history` adds every known item, those beyond the window included."""
    question = encode(history=["a", "b", "a", "?", "b", "a"], exclude=["c"], exclude_history=also)
    assert question.exclude.tolist() == excluded


def test_candidates_that_are_all_unknown_leave_nothing():
    """They restrict to [mask], which is never an answer, while no candidates restrict nothing."""
    feed = stack(encode(candidates=["x"]), encode(), encode(candidates=["b", "x"]))
    assert feed["candidates"].tolist() == [[MASK], [PAD], [2]]


@pytest.mark.parametrize(("asked", "given_"), [(1, 1), (4, 4), (5, 4), (500, 4)])
def test_k_is_cut_to_the_catalogue(asked, given_):
    """The graph is never asked for more items than there are."""
    assert encode(k=asked).k == given_


def test_batch_asks_for_the_largest_k():
    """One run serves questions of different k; each row is cut to its own afterwards."""
    assert stack(encode(k=1), encode(k=3))["k"].tolist() == [3]
    answer = decode_answer(VOCABULARY, np.array([2, 4, 1]), np.array([3.0, 2.0, 1.0], dtype=np.float32), k=1)
    assert answer == (["b"], [3.0])


def test_answer_ends_where_nothing_was_left():
    """Places with a score of -inf are no answers."""
    scores = np.array([3.0, -np.inf, -np.inf], dtype=np.float32)
    assert decode_answer(VOCABULARY, np.array([2, 0, MASK]), scores, k=3) == (["b"], [3.0])

"""Questions in ids to the graph's inputs, and its output back to ids."""

import numpy as np
import pytest

from model.contract.allowed import Allowed
from model.contract.event_inputs import Events
from model.contract.query import (
    ALLOWED,
    ALLOWED_ROWS,
    INPUTS,
    decode_answers,
    encode_question,
    is_signature,
    select_rows,
    stack_questions,
)
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
    scores = np.array([[3.0, 2.0, 1.0]] * 2, dtype=np.float32)
    answers = decode_answers(VOCABULARY, [encode(k=1), encode(k=3)], np.array([[2, 4, 1]] * 2), scores)
    assert answers == [(["b"], [3.0]), (["b", "d", "a"], [3.0, 2.0, 1.0])]


def test_answer_ends_where_nothing_was_left():
    """Places with a score of -inf are no answers."""
    scores = np.array([[3.0, -np.inf, -np.inf]], dtype=np.float32)
    assert decode_answers(VOCABULARY, [encode(k=3)], np.array([[2, 0, MASK]]), scores) == [(["b"], [3.0])]


def test_events_stand_beside_their_items():
    """What came with an unknown item drops out with it, the oldest beyond the window too; nothing stands at [mask]."""
    told = Events(
        ["view", "buy", "?", "view", "buy", "view"], [1.0, None, 3.0, 4.0, 5.0, 6.0], [10, 20, 30, 40, 50, 60]
    )
    asked = encode(history=["a", "b", "x", "c", "d", "a"], events=told, event_types=("buy", "view"))
    inputs = (*INPUTS, "types", "values", "times")
    feed = stack_questions([asked, encode(), encode(history=[])], max_length=4, mask_index=MASK, inputs=inputs)
    assert feed["item_ids"].tolist() == [[3, 4, 1, MASK], [PAD, PAD, 1, MASK], [PAD, PAD, PAD, MASK]]
    assert feed["types"].tolist() == [[2, 1, 2, 0], [0] * 4, [0] * 4]
    assert feed["times"].tolist() == [[40, 50, 60, 0], [0] * 4, [0] * 4]
    assert feed["values"][0].tolist()[:3] == [4.0, 5.0, 6.0]
    assert np.isnan(feed["values"][0, 3])
    assert np.isnan(feed["values"][1:]).all()
    assert [feed[name].dtype for name in ("types", "values", "times")] == [np.int32, np.float32, np.int64]


def test_only_what_the_graph_reads_is_given():
    """Without optional inputs a feed is what it always was."""
    assert stack(encode()).keys() == set(INPUTS)
    only = stack_questions([encode()], max_length=5, mask_index=MASK, inputs=(*INPUTS, "times"))
    assert only.keys() == {*INPUTS, "times"}


def test_a_signature_is_all_of_ours_and_no_others():
    """Optional inputs may come to it, unknown ones may not, and none may be missing."""
    assert is_signature(INPUTS)
    assert is_signature((*INPUTS, "types"))
    assert not is_signature((*INPUTS, "dwell"))
    assert not is_signature(INPUTS[1:])


def test_masks_come_with_the_rows_that_have_them():
    """A batch without masks has no such inputs; rows of one filter each have its bits."""
    assert stack(encode(), encode()).keys() == set(INPUTS)
    some, others = Allowed.only([1, 3], item_count=4), Allowed.all_but([1], item_count=4)
    feed = stack(encode(), encode(allowed=some), encode(allowed=others), encode(allowed=some))
    assert feed[ALLOWED_ROWS].tolist() == [[1], [2], [3]]
    assert feed[ALLOWED].tolist() == [[bits, *[0] * 7] for bits in (0b1010, 0b11100, 0b1010)]
    assert feed[ALLOWED].dtype == np.int32


def test_selected_rows_keep_their_masks():
    """In whatever order rows are taken, the mask of each is for its new place."""
    masks = [None, Allowed.only([1], item_count=4), None, Allowed.only([2], item_count=4)]
    feed = stack(*(encode(allowed=mask) for mask in masks))
    picked = select_rows(feed, np.array([3, 0, 1]))
    assert picked[ALLOWED_ROWS].tolist() == [[2], [0]]
    assert picked[ALLOWED][:, 0].tolist() == [0b10, 0b100]
    assert select_rows(feed, np.array([2, 0]))[ALLOWED].shape == (0, 8)


def test_a_mask_over_other_items_is_refused():
    """It would allow other items than it was made for."""
    with pytest.raises(ValueError, match="another vocabulary"):
        encode(allowed=Allowed.only([1], item_count=5))

"""History -> input: truncation, alignment, [mask], and the feed built of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.contract.sequence import align_right, encode_feed, encode_histories
from model.contract.vocabulary import PAD, Vocabulary

MASK = 99
histories = st.lists(st.lists(st.integers(1, 98), max_size=30), min_size=1, max_size=8)
VOCABULARY = Vocabulary(["a", "b", "c", "d"])


@given(histories)
def test_rows_end_at_the_right_edge(rows):
    """Each row stands unchanged in its last columns and everything before it is PAD."""
    item_ids, lengths = align_right(rows)
    for row, encoded, length in zip(rows, item_ids, lengths, strict=True):
        assert length == len(row)
        assert encoded[len(encoded) - length :].tolist() == row
        assert (encoded[: len(encoded) - length] == PAD).all()


@given(histories, st.integers(2, 40))
def test_input_is_the_newest_items_and_mask(rows, max_length):
    """A row is the last max_length - 1 items and [mask], as a plain loop would build it."""
    item_ids, lengths = encode_histories(rows, max_length=max_length, mask_index=MASK)
    assert item_ids.shape[1] <= max_length
    for row, encoded, length in zip(rows, item_ids, lengths, strict=True):
        wanted = [*row[-(max_length - 1) :], MASK]
        assert encoded[-length:].tolist() == wanted


@given(histories)
def test_batched_is_single(rows):
    """A history is encoded alike alone and in a batch, padding aside."""
    together, lengths = encode_histories(rows, max_length=10, mask_index=MASK)
    for row, encoded, length in zip(rows, together, lengths, strict=True):
        alone = encode_histories([row], max_length=10, mask_index=MASK)
        assert alone.item_ids[0].tolist() == encoded[-length:].tolist()


@pytest.mark.parametrize(("length", "kept"), [(4, 4), (5, 5), (6, 5), (7, 5)])
def test_truncation_at_and_beyond_the_limit(length, kept):
    """At N = 6 five items fit beside [mask]; the sixth pushes the oldest out."""
    item_ids, lengths = encode_histories([list(range(1, length + 1))], max_length=6, mask_index=MASK)
    assert lengths.tolist() == [kept + 1]
    assert item_ids[0].tolist() == [*range(length - kept + 1, length + 1), MASK]


def test_empty_history_is_mask_alone():
    """Nothing known still asks one question."""
    item_ids, lengths = encode_histories([[]], max_length=6, mask_index=MASK)
    assert (item_ids.tolist(), lengths.tolist()) == ([[MASK]], [1])


def test_max_length_needs_room():
    """A window without room for an item is refused."""
    with pytest.raises(ValueError, match="max_length"):
        encode_histories([[1]], max_length=1, mask_index=MASK)


def test_no_rows_make_an_empty_input():
    """No history at all gives arrays without rows."""
    item_ids, lengths = align_right([])
    assert item_ids.shape == (0, 1)
    assert lengths.shape == (0,)


def ask(**changes):
    """One question about VOCABULARY."""
    question = {"histories": [["a"]], "exclude": [[]], "candidates": [[]], "k": 2, "max_length": 5}
    return encode_feed(VOCABULARY, **{**question, **changes})


def test_feed_has_the_graphs_types():
    """Every input but k is int32, k is one int64."""
    feed = ask()
    assert {name: array.dtype for name, array in feed.items() if name != "k"} == dict.fromkeys(
        ("item_ids", "lengths", "exclude", "candidates"), np.dtype(np.int32)
    )
    assert feed["k"].dtype == np.int64
    assert feed["k"].shape == (1,)


def test_feed_skips_unknown_items():
    """Unknown items leave histories and exclusions as if they were not there."""
    feed = ask(histories=[["x", "b", "y", "a"]], exclude=[["z", "d"]])
    assert feed["item_ids"].tolist() == [[2, 1, 5]]
    assert feed["exclude"].tolist() == [[4]]


def test_candidates_that_are_all_unknown_leave_nothing():
    """They restrict to [mask], which is never an answer, while no candidates restrict nothing."""
    feed = ask(histories=[["a"]] * 3, exclude=[[]] * 3, candidates=[["x"], [], ["b", "x"]])
    assert feed["candidates"].tolist() == [[VOCABULARY.mask_index], [PAD], [2]]


@pytest.mark.parametrize(("asked", "given_"), [(1, 1), (4, 4), (5, 4), (500, 4)])
def test_k_is_cut_to_the_catalogue(asked, given_):
    """The graph is never asked for more items than there are."""
    assert ask(k=asked)["k"].tolist() == [given_]

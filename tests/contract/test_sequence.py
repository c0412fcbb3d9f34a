"""History -> input: truncation, alignment, [mask], and the feed built of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.contract.sequence import align_right, encode_histories
from model.contract.vocabulary import PAD

MASK = 99
histories = st.lists(st.lists(st.integers(1, 98), max_size=30), min_size=1, max_size=8)


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

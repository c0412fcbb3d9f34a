"""Masks over a vocabulary's items: what they allow, put together and counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.contract.allowed import Allowed, allow_both, count_bytes

masks = st.lists(st.booleans(), min_size=2, max_size=150).map(np.array)


@given(masks)
def test_a_mask_is_what_it_allows(mask):
    """Items by index, counted and listed, with their complement; PAD and MASK are never among them."""
    allowed = Allowed(mask)
    items = range(1, len(mask) - 1)
    assert allowed.item_count == len(items)
    assert allowed.indexes.tolist() == [item for item in items if mask[item]]
    assert allowed.forbidden.tolist() == [item for item in items if not mask[item]]
    assert (allowed.count, allowed.forbidden_count) == (len(allowed.indexes), len(allowed.forbidden))
    assert not allowed.mask[[0, -1]].any()
    assert allowed.indexes.dtype == allowed.forbidden.dtype == np.int32


@given(masks)
def test_lists_make_the_same_masks(mask):
    """From what is allowed and from what is forbidden, in any order and more than once."""
    allowed = Allowed(mask)
    for again in (
        Allowed.only([*allowed.indexes[::-1], *allowed.indexes], item_count=len(mask) - 2),
        Allowed.all_but([*allowed.forbidden[::-1], *allowed.forbidden], item_count=len(mask) - 2),
    ):
        assert again.mask.tolist() == allowed.mask.tolist()


@given(masks)
def test_bits_are_the_mask_in_whole_blocks(mask):
    """Eight items a byte, the first one lowest, up to the end of the last block of 64 columns."""
    allowed = Allowed(mask)
    bits = [byte >> place & 1 for byte in allowed.bits.tolist() for place in range(8)]
    assert len(bits) % 64 == 0
    assert len(mask) <= len(bits) < len(mask) + 64
    assert len(allowed.bits) == count_bytes(allowed.item_count)
    assert bits == [*allowed.mask.astype(int).tolist(), *[0] * (len(bits) - len(mask))]


def test_a_mask_does_not_change():
    """Neither by the array that it was made of, nor by the one that it shows; what is known of it is found once."""
    mine = np.ones(6, dtype=bool)
    allowed = Allowed(mine)
    mine[2] = False
    assert allowed.count == 4
    with pytest.raises(ValueError, match="read-only"):
        allowed.mask[2] = False
    assert allowed.indexes is allowed.indexes
    assert allowed.bits is allowed.bits


def test_both_masks_allow():
    """What two masks allow; None allows all, and costs nothing to combine."""
    some, others = Allowed.only([1, 2, 3], item_count=5), Allowed.all_but([2, 5], item_count=5)
    assert (some & others).indexes.tolist() == [1, 3]
    both = allow_both(some, others)
    assert both is not None
    assert both.indexes.tolist() == [1, 3]
    assert allow_both(some, None) is allow_both(None, some) is some
    assert allow_both(None, None) is None
    assert repr(both) == "Allowed(2 of 5)"


@pytest.mark.parametrize("broken", [np.ones(6, dtype=int), np.ones((2, 6), dtype=bool), np.ones(1, dtype=bool)])
def test_what_is_no_mask_is_refused(broken):
    """Numbers, tables, and less than PAD and MASK."""
    with pytest.raises(ValueError, match="one truth value"):
        Allowed(broken)


def test_masks_of_different_catalogues_do_not_mix():
    """Their indexes mean other items."""
    with pytest.raises(ValueError, match="different sizes"):
        Allowed(np.ones(6, dtype=bool)) & Allowed(np.ones(7, dtype=bool))

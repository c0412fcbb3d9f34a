"""History -> network input, defined once for the trainer and the server.

Rows are aligned to the right: the newest item, or [mask], always stands in the last column, so that a learned position
means "this many steps before the answer" whatever the length of the batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Row = Sequence[int] | NDArray[np.int32]
"""The indexes of one row, in order."""


class Input(NamedTuple):
    """What an encoder reads: `item_ids` (B, T) int32, left-padded with PAD, and `lengths` (B) int32 of real tokens."""

    item_ids: NDArray[np.int32]
    lengths: NDArray[np.int32]


def align_right(rows: Sequence[Row], *, at_least: int = 1) -> Input:
    """Stack rows of indexes into (B, T), right-aligned, T being the longest row and never less than `at_least`."""
    return _align(rows, free=0, at_least=at_least)


def encode_histories(histories: Sequence[Row], *, max_length: int, mask_index: int) -> Input:
    """Turn B histories of item indexes, oldest first, into the input that asks for the next item.

    Keeps the newest `max_length` - 1 items of each and appends [mask] (Sun et al. 2019, section 3.6). An empty history
    becomes [mask] alone. Shapes: (B, T) with T <= `max_length`.
    """
    if max_length < 2:
        raise ValueError("max_length must leave room for one item and [mask]")
    tail = max_length - 1
    asked = _align([history[-tail:] for history in histories], free=1, at_least=1)
    asked.item_ids[:, -1] = mask_index
    return asked


def _align(rows: Sequence[Row], *, free: int, at_least: int) -> Input:
    """Rows aligned to the right, but for the last `free` columns, which count as theirs and are left to the caller."""
    lengths = [len(row) + free for row in rows]
    width = max(at_least, *lengths, 0)
    item_ids = np.zeros((len(rows), width), dtype=np.int32)  # PAD; np.full takes several times as long
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if length > free:
            item_ids[number, width - length : width - free] = row
    return Input(item_ids, np.array(lengths, dtype=np.int32))

"""History -> network input, defined once for the trainer and the server.

Rows are aligned to the right: the newest item, or [mask], always stands in the last column, so that a learned position
means "this many steps before the answer" whatever the length of the batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model.contract.vocabulary import PAD


class Input(NamedTuple):
    """What an encoder reads: `item_ids` (B, T) int32, left-padded with PAD, and `lengths` (B) int32 of real tokens."""

    item_ids: NDArray[np.int32]
    lengths: NDArray[np.int32]


def align_right(rows: Sequence[ArrayLike], *, at_least: int = 1) -> Input:
    """Stack rows of indexes into (B, T), right-aligned, T being the longest row and never less than `at_least`."""
    arrays = [np.asarray(row, dtype=np.int32) for row in rows]
    lengths = np.fromiter((len(array) for array in arrays), dtype=np.int32, count=len(arrays))
    width = max(at_least, int(lengths.max(initial=0)))
    item_ids = np.full((len(arrays), width), PAD, dtype=np.int32)
    if arrays:
        item_ids[np.arange(width) >= width - lengths[:, None]] = np.concatenate(arrays)
    return Input(item_ids, lengths)


def encode_histories(histories: Sequence[ArrayLike], *, max_length: int, mask_index: int) -> Input:
    """Turn B histories of item indexes, oldest first, into the input that asks for the next item.

    Keeps the newest `max_length` - 1 items of each and appends [mask] (Sun et al. 2019, section 3.6). An empty history
    becomes [mask] alone. Shapes: (B, T) with T <= `max_length`.
    """
    if max_length < 2:
        raise ValueError("max_length must leave room for one item and [mask]")
    tail = max_length - 1
    return align_right([np.append(np.asarray(history, dtype=np.int32)[-tail:], mask_index) for history in histories])

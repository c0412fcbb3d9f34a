"""A batch cut into runs by length, so that short histories are not computed as long ones."""

import numpy as np
from numpy.typing import NDArray

_RUN_TOKENS = 32
_ITEMS_PER_TOKEN = 500
"""One more run costs about as much as 32 tokens, and reading 500 items as much as one (docs/experiments.md)."""


def price_run(item_count: int) -> int:
    """What one more run costs, in tokens."""
    return _RUN_TOKENS + item_count // _ITEMS_PER_TOKEN


def cut_by_length(lengths: NDArray[np.int32], *, run_tokens: int) -> list[NDArray[np.intp]]:
    """Cut B rows, given their lengths, into groups, each to be padded to its longest row, longest group first.

    A cut must spare more tokens of padding than the run that it adds costs.
    """
    order = np.argsort(-lengths, kind="stable")
    groups: list[NDArray[np.intp]] = []
    pending = [order]
    while pending:
        rows = pending.pop()
        place = _find_cut(lengths[rows], run_tokens)
        if place:
            pending += [rows[place:], rows[:place]]
        else:
            groups.append(rows)
    return groups


def _find_cut(lengths: NDArray[np.int32], run_tokens: int) -> int:
    """Where to cut rows of falling length: before the row that spares most; 0 where no cut pays."""
    spared = (lengths[:1] - lengths) * np.arange(len(lengths), 0, -1)
    place = int(spared.argmax()) if len(spared) else 0
    return place if place and spared[place] > run_tokens else 0

"""Splits a batch into length groups, so that short histories are not padded to the longest one."""

import numpy as np
from numpy.typing import NDArray

_RUN_TOKENS = 32
_ITEMS_PER_TOKEN = 500
"""One more run costs about as much as 32 tokens, and reading 500 items as much as one
(docs/lab/2026-11-21-graph-steps.md)."""


def run_cost_tokens(item_count: int) -> int:
    """The fixed cost of one more run, in tokens."""
    return _RUN_TOKENS + item_count // _ITEMS_PER_TOKEN


def group_by_length(lengths: NDArray[np.int32], *, run_tokens: int) -> list[NDArray[np.intp]]:
    """Split B rows by their lengths (B) into groups of row indexes, longest group first.

    Each group is padded to its longest row. A split must save more tokens of padding than the extra run costs.
    """
    order = np.argsort(-lengths, kind="stable")
    groups: list[NDArray[np.intp]] = []
    pending = [order]
    while pending:
        rows = pending.pop()
        split = _find_split(lengths[rows], run_tokens)
        if split:
            pending += [rows[split:], rows[:split]]
        else:
            groups.append(rows)
    return groups


def _find_split(lengths: NDArray[np.int32], run_tokens: int) -> int:
    """Where to split rows of falling length: before the row that saves most; 0 if no split pays."""
    spared = (lengths[:1] - lengths) * np.arange(len(lengths), 0, -1)
    split = int(spared.argmax()) if len(spared) else 0
    return split if split and spared[split] > run_tokens else 0

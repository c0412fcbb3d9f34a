"""What a user adds to the counts that answer him, so that it can be left out: nobody is answered by his own history.

A user's training history stands in the counts, and his questions ask about what came after it. Where he meets an item
again his own history names it, which no history of another user does: a figure with it is that of asking whoever was
counted, and flatters the counts (docs/decisions/0031).

Symbols: B questions, V items.
"""

import numpy as np
from numpy.typing import NDArray

from training.baselines.sparse_rows import add_up
from training.data.histories import Histories
from training.data.split import count_items


class Counted:
    """The training histories that were counted, and whether a user's own is left out of the answers to him."""

    def __init__(self, train: Histories, item_count: int, *, leave_own_out: bool) -> None:
        self._counts = count_items(train, item_count)
        self._left_out = train if leave_own_out else train.select(slice(0, 0))

    def find_own(self, asked: Histories) -> Histories:
        """The counted history of each user who asks (B), empty where nothing is to be left out."""
        return self._left_out.find_own(asked)

    def share_others(self, own: Histories) -> NDArray[np.float64]:
        """Each item's share of what others met (B, V), below 1 even where there is but one item."""
        rows, items = own.flatten()
        users, met, times = add_up(rows, items - 1, np.ones(len(rows)), len(self._counts))
        totals = self._counts.sum() - own.lengths + 1
        shares: NDArray[np.float64] = self._counts / totals[:, None]
        shares[users, met] = (self._counts[met] - times) / totals[users]
        return shares

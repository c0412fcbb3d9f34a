"""Divides what a request may be answered with into a set for each of its boosts, and the rest: no item is in two.

Requests of a scenario divide alike, so the last divisions are kept, as long as there is room.
"""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

import numpy as np

from model.contract.allowed import Allowed
from service.system.side_thread import SideThread

KEPT = 16
KEPT_BYTES = 64 << 20
"""So many divisions are kept for a model, or so many bytes of them, at BYTES_PER_ITEM; and always one."""
BYTES_PER_ITEM = 20
"""Five sets of two masks each, and those that they were made of, which may be kept nowhere else any more."""
AT_ONCE = 500_000
"""So many items of all sets together take about half a millisecond. More are divided beside the event loop."""


class Divisions:
    """Of one model. They belong to the loop."""

    def __init__(self, item_count: int, thread: SideThread) -> None:
        self._item_count = item_count
        self._thread = thread
        self._room = max(1, min(KEPT, KEPT_BYTES // (BYTES_PER_ITEM * (item_count + 2))))
        self._kept: OrderedDict[tuple[Allowed | None, ...], tuple[Allowed, ...]] = OrderedDict()
        """The one asked for last stands last. Masks are told apart by identity: what changed is another one."""

    async def find(self, allowed: Allowed | None, matching: Sequence[Allowed]) -> tuple[Allowed, ...]:
        """What `divide` gives; the same sets for the same masks while kept.

        Raises Overloaded if too many requests wait for theirs.
        """
        key = (allowed, *matching)
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known
        work = partial(divide, allowed, matching, item_count=self._item_count)
        found = work() if len(key) * self._item_count <= AT_ONCE else await self._thread.run(work)
        self._kept[key] = found
        if len(self._kept) > self._room:
            self._kept.popitem(last=False)
        return found


def divide(allowed: Allowed | None, matching: Sequence[Allowed], *, item_count: int) -> tuple[Allowed, ...]:
    """Of what is allowed (None: all) the items in each mask and in none before it; last, those in no mask."""
    left = np.ones(item_count + 2, dtype=np.bool_) if allowed is None else allowed.mask.copy()
    sets: list[Allowed] = []
    for one in matching:
        sets.append(Allowed(left & one.mask))
        left &= ~one.mask
    return (*sets, Allowed(left))

"""Which items of a model a request may be answered with: what its filter allows, of what is available.

What a filter allows is found once and kept for the next requests, as long as there is room; so is what is available of
it, until an item is sold out or back.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from model.contract.allowed import Allowed
from model.contract.attributes import Attributes
from service.api.business_rules import Boost
from service.business_rules.boosts import BoostedSet
from service.errors import Invalid
from service.filters.filter import Filter
from service.inference.model import LiveModel
from service.recommend.divisions import Divisions
from service.system.side_thread import SideThread

KEPT = 64
KEPT_BYTES = 64 << 20
"""So many filters are kept for a model, or so many bytes of them, at two masks of a byte an item; and always one."""
AT_ONCE_NS = 500_000
"""What takes longer is found beside the event loop."""

_thread = SideThread("filters", limit=16)  # a batch may wait for all of them


class Restrictions:
    """Of one model. Its methods belong to the loop."""

    def __init__(self, model: LiveModel) -> None:
        self._attributes = model.attributes or Attributes(len(model.vocabulary), {})
        self._room = max(1, min(KEPT, KEPT_BYTES // (2 * model.vocabulary.table_size)))
        self._kept: OrderedDict[Filter, Allowed] = OrderedDict()
        """The one asked for last stands last."""
        self._available: dict[Filter, tuple[Allowed, Allowed]] = {}
        """Of those kept: what was available last, and what the filter allows of it."""
        self._under_way: dict[Filter, asyncio.Task[Allowed]] = {}
        self._divisions = Divisions(len(model.vocabulary), _thread)

    async def find(self, wanted: Filter, available: Allowed | None = None) -> Allowed:
        """The items that a filter allows of those available (None: all); the same object for equal ones while kept.

        Raises Invalid if the model's bundle lacks a field of the filter or has it of another type, and Overloaded if
        too many requests wait for theirs.
        """
        found = await self._find(wanted)
        if available is None:
            return found
        before, both = self._available.get(wanted, (None, found))
        if before is not available:
            both = found & available
            if wanted in self._kept:
                self._available[wanted] = available, both
        return both

    async def divide(
        self, boosts: Sequence[Boost], allowed: Allowed | None, available: Allowed | None
    ) -> tuple[BoostedSet, ...]:
        """What a request may be answered with, of which `allowed` is all (None: every item), by boost, and the rest.

        Sets without items are left out, unless none has any. Raises as `find`, with pointers from /boosts on.
        """
        matching: list[Allowed] = []
        for place, boost in enumerate(boosts):
            try:
                matching.append(await self.find(boost.filter, available))
            except Invalid as invalid:
                raise invalid.under(f"/boosts/{place}") from None
        sets = await self._divisions.find(allowed, matching)
        boosted = [BoostedSet(one, boost.add) for one, boost in zip(sets, boosts, strict=False) if one.count]
        if sets[-1].count or not boosted:
            boosted.append(BoostedSet(sets[-1], 0.0))
        return tuple(boosted)

    async def _find(self, wanted: Filter) -> Allowed:
        known = self._kept.get(wanted)
        if known is not None:
            self._kept.move_to_end(wanted)
            return known
        wanted.check(self._attributes)
        if wanted.estimate_work(self._attributes) <= AT_ONCE_NS:
            return self._keep(wanted, wanted.allow(self._attributes))
        task = self._under_way.get(wanted)
        if task is None:
            task = self._under_way[wanted] = asyncio.create_task(self._find_beside(wanted))
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may wait any more
        return await asyncio.shield(task)

    async def _find_beside(self, wanted: Filter) -> Allowed:
        try:
            return self._keep(wanted, await _thread.run(partial(wanted.allow, self._attributes)))
        finally:
            del self._under_way[wanted]

    def _keep(self, wanted: Filter, allowed: Allowed) -> Allowed:
        self._kept[wanted] = allowed
        if len(self._kept) > self._room:
            oldest, _ = self._kept.popitem(last=False)
            self._available.pop(oldest, None)
        return allowed

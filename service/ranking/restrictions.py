"""Which items of a model a request may be answered with: what its filter allows, of what is available.

What a filter allows is found once and kept for the next requests, as long as there is room; where the catalogue changes
metadata, changed items alone are looked at again. What is available of it is kept until an item is sold out or back.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from model.contract.allowed import Allowed
from model.contract.attributes import Attributes
from service.api.business_rules import Boost
from service.business_rules.boosts import BoostedSet
from service.catalogue.changed_metadata import ChangedMetadata
from service.catalogue.live import CatalogueView
from service.errors import Invalid
from service.filters.changed_columns import Seen
from service.filters.filter import Filter
from service.inference.model import LiveModel
from service.ranking.divisions import Divisions
from service.system.side_thread import SideThread

KEPT = 64
KEPT_BYTES = 64 << 20
"""So many filters are kept for a model, or so many bytes of them, at two masks of a byte an item; and always one."""
AT_ONCE_NS = 500_000
"""What takes longer is found beside the event loop."""

_thread = SideThread("filters", limit=16)  # a batch may wait for all of them


class _Found(NamedTuple):
    """What a filter allows, by the rows of changed metadata that were seen."""

    allowed: Allowed
    seen: Seen


class Restrictions:
    """Of one model. Its methods belong to the loop."""

    def __init__(self, model: LiveModel) -> None:
        self._attributes = model.attributes or Attributes(len(model.vocabulary), {})
        kinds = {name: column.numeric for name, column in self._attributes.columns.items()}
        self._changed = ChangedMetadata(model.vocabulary, kinds, model.find_metadata)
        self._room = max(1, min(KEPT, KEPT_BYTES // (2 * model.vocabulary.table_size)))
        self._kept: OrderedDict[Filter, _Found] = OrderedDict()
        """The one asked for last stands last."""
        self._available: dict[Filter, tuple[Allowed, Allowed, Allowed]] = {}
        """Of those kept: what was available last, what the filter allowed then, and both."""
        self._under_way: dict[tuple[Filter, Seen], asyncio.Task[_Found]] = {}
        self._divisions = Divisions(len(model.vocabulary), _thread)

    async def follow(self, view: CatalogueView, *, within_s: float) -> CatalogueView:
        """What an answer with a filter sees of the catalogue: it is behind if the filters do not know all of it."""
        return await self._changed.follow(view, within_s=within_s)

    async def find(self, wanted: Filter, available: Allowed | None = None) -> Allowed:
        """The items that a filter allows of those available (None: all); the same object for equal ones while kept.

        It reads the metadata as of the last `follow`, or later. Raises Invalid if the model's bundle lacks a field of
        the filter or has it of another type, and Overloaded if too many requests wait for theirs.
        """
        found = await self._find(wanted)
        if available is None:
            return found
        before, of, both = self._available.get(wanted, (None, None, found))
        if before is not available or of is not found:
            both = found & available
            if wanted in self._kept:
                self._available[wanted] = available, found, both
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
        if known is None:
            wanted.check(self._attributes)
            cost_ns = wanted.estimate_work(self._attributes)
            known = await self._make(wanted, Seen(), partial(wanted.allow, self._attributes), cost_ns)
        else:
            self._kept.move_to_end(wanted)
        columns = self._changed.columns
        while known.seen != columns.end:  # again if more comes while it is found beside the loop
            seen, changed = columns.end, columns.since(known.seen, wanted.fields)
            work = partial(wanted.allow_anew, known.allowed, changed)
            known = await self._make(wanted, seen, work, wanted.estimate_work(changed))
        return known.allowed

    async def _make(self, wanted: Filter, seen: Seen, work: Callable[[], Allowed], cost_ns: int) -> _Found:
        """What `work` finds, kept: at once if it costs little."""
        if cost_ns <= AT_ONCE_NS:
            return self._keep(wanted, _Found(work(), seen))
        task = self._under_way.get((wanted, seen))
        if task is None:
            task = self._under_way[wanted, seen] = asyncio.create_task(self._make_beside(wanted, seen, work))
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may wait any more
        return await asyncio.shield(task)

    async def _make_beside(self, wanted: Filter, seen: Seen, work: Callable[[], Allowed]) -> _Found:
        try:
            return self._keep(wanted, _Found(await _thread.run(work), seen))
        finally:
            del self._under_way[wanted, seen]

    def _keep(self, wanted: Filter, found: _Found) -> _Found:
        self._kept[wanted] = found
        if len(self._kept) > self._room:
            oldest, _ = self._kept.popitem(last=False)
            self._available.pop(oldest, None)
        return found

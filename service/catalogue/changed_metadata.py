"""Keeps what filters read of a model's changed items as new as a worker's overlay, from its first filter on.

Until then it holds nothing. Then it reads the metadata of all changed items once, beside the answers where they are
many, and afterwards those of each item that changes.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from model.contract.vocabulary import Vocabulary
from service.catalogue.live import CatalogueView
from service.catalogue.overlay import Overlay
from service.filters.changed_columns import ChangedColumns

AT_ONCE: Final = 1000
"""So many items are read while each request waits, some milliseconds; more beside the answers."""
STEP: Final = 50
"""Items that are read in one iteration of the loop."""


class ChangedMetadata:
    """Of one model. Its methods belong to the loop."""

    def __init__(
        self, vocabulary: Vocabulary, kinds: Mapping[str, bool], find_metadata: Callable[[str], bytes]
    ) -> None:
        """`kinds` are the columns that can be filtered by, and whether they hold numbers.

        `find_metadata` gives what the bundle says of an item, which counts for one that is again as the bundle has it.
        """
        self._vocabulary = vocabulary
        self._filterable = bool(kinds)
        self._find_metadata = find_metadata
        self.columns = ChangedColumns(kinds, item_count=len(vocabulary))
        """One row for each change; an item without a row is as the bundle has it."""
        self._overlay: Overlay | None = None
        self._pending: set[str] = set()
        """Items whose metadata changed since they were read."""
        self._backlog: list[str] = []
        """Items of an overlay that is new here, which are all to be read."""
        self._version = 0
        """The overlay's version when all was read."""
        self._work: asyncio.Task[None] | None = None

    def note_changed(self, item_id: str) -> None:
        """The overlay has other metadata of an item from now on."""
        if item_id in self._vocabulary:
            self._pending.add(item_id)

    async def follow(self, view: CatalogueView, *, within_s: float) -> CatalogueView:
        """What an answer with a filter sees: the view, once all of it is read.

        Where more is to be read than can be at once, it is read in the background, and only the request that begins
        this waits for it. Until it is done others have a view that is behind.
        """
        if not self._filterable:
            return view
        if view.overlay is not self._overlay:
            self._adopt(view.overlay)
        if self._begins and len(self._pending) + len(self._backlog) <= AT_ONCE:
            await self._read_all()
        if not self._complete and self._begins:
            self._work = work = asyncio.create_task(self._read_all())
            await asyncio.wait([work], timeout=within_s)
            known = work.done()  # so all of the view was read, though more may have come since
        else:
            known = self._complete
        if known and self._overlay is view.overlay:  # another one may have come meanwhile
            return view
        return view._replace(version=min(view.version, self._version), behind=True)

    @property
    def _begins(self) -> bool:
        """Whether nobody reads yet."""
        return self._work is None or self._work.done()

    @property
    def _complete(self) -> bool:
        return not self._pending and not self._backlog

    def _adopt(self, overlay: Overlay) -> None:
        """Follow another overlay. All that it or the one before it has of its own is to be read."""
        overlay.watchers.add(self)
        self._overlay, self._version, self._pending = overlay, 0, set()
        self._backlog = [*self._vocabulary.decode(self.columns.items.tolist()), *overlay.records]

    async def _read_all(self) -> None:
        """Read what is to be read, by whatever overlay is followed meanwhile, other tasks in between."""
        while self._overlay is not None and not self._complete:
            try:
                self._read(self._overlay)
            except BaseException:
                self._overlay = None  # what it did not read is in no list any more: all is to be read again
                raise
            if not self._complete:
                await asyncio.sleep(0)

    def _read(self, overlay: Overlay) -> None:
        """Read the metadata of up to STEP items."""
        changes: list[tuple[int, Mapping[str, Any]]] = []
        for _ in range(STEP):
            if self._complete:
                break
            item_id = self._pending.pop() if self._pending else self._backlog.pop()
            index = self._vocabulary.index_of(item_id)
            own = overlay.find_own(item_id)
            if index > 0 and (own or self.columns.has(index)):
                changes.append((index, _decode(own or self._find_metadata(item_id))))
        self.columns.extend(changes)
        if self._complete:
            self._version = overlay.version


def _decode(metadata: bytes) -> Mapping[str, Any]:
    """Metadata as a mapping; empty if another hand than the service's wrote something else into the store."""
    try:
        found = orjson.loads(metadata)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}

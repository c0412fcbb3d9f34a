"""Searches the items of the model in use. Each model has an index of its own, which goes when the model does.

The first search by a model builds its index, so who never searches pays nothing. It is built and searched in threads.
"""

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from service.catalogue.overlay import Overlay
from service.errors import Overloaded, SearchNotReady
from service.inference.model import LiveModel
from service.search.changed_items import ChangedItems
from service.search.folding import fold
from service.search.item_ids import find_ids
from service.search.pace import OutOfTime, Pace
from service.search.title_index import TitleIndex, read_titles
from service.system.side_thread import SideThread

MAX_SEARCHES = 8
"""Searches under way or waiting for their turn."""
SEARCH_S = 1.0
"""Time for a search, from the moment that the index is there."""
BUILD_WAIT_S = 1.0
"""How long a search waits for the index."""

_log = logging.getLogger(__name__)


class Found(NamedTuple):
    """The best matches."""

    item_ids: list[str]
    """Best match first."""
    more: bool
    """Whether there are others."""


class ItemSearch:
    """The indexes of the models in use, and the threads that build and search them. Its methods belong to the loop."""

    def __init__(self, *, field: str) -> None:
        """`field` of an item's metadata is its title."""
        self._field = field
        self._changed = ChangedItems(field=field)
        self._indexes: weakref.WeakKeyDictionary[LiveModel, asyncio.Task[TitleIndex]] = weakref.WeakKeyDictionary()
        self._stopped = threading.Event()
        self._building = SideThread("search-index", limit=2)
        self._searching = SideThread("search", limit=MAX_SEARCHES)

    async def find(self, model: LiveModel, query: str, *, limit: int, overlay: Overlay | None) -> Found:
        """At most so many items that match, of a model and of what was changed since.

        Raises SearchNotReady and Overloaded.
        """
        try:
            index = await self._find_index(model)
            pace = Pace(self._stopped, within_s=SEARCH_S)
            if overlay is None or not overlay.records:
                search = partial(rank_matches, model, index, query, most=limit + 1, pace=pace)
            else:
                search = partial(self._changed.rank, model, index, overlay, query, most=limit + 1, pace=pace)
            item_ids = await self._searching.run(search)
        except OutOfTime:
            raise Overloaded("The search took too long: send the request again later.") from None
        return Found(item_ids[:limit], len(item_ids) > limit)

    def close(self) -> None:
        """End the threads, whatever they do."""
        self._stopped.set()
        self._building.close()
        self._searching.close()

    async def _find_index(self, model: LiveModel) -> TitleIndex:
        index = self._indexes.get(model)
        if index is None:
            titles = read_titles(model.metadata, model.popular.order, self._field) if model.metadata else ()
            build = partial(_build, titles, Pace(self._stopped))
            index = self._indexes[model] = asyncio.create_task(self._building.run(build))
            index.add_done_callback(partial(self._forget_failed, weakref.ref(model)))
        try:
            async with asyncio.timeout(BUILD_WAIT_S):
                return await asyncio.shield(index)
        except TimeoutError:
            raise SearchNotReady from None

    def _forget_failed(self, model: weakref.ref[LiveModel], index: asyncio.Task[TitleIndex]) -> None:
        """The next search tries again."""
        if index.cancelled() or index.exception() is None:
            return
        if not isinstance(index.exception(), OutOfTime | Overloaded):
            _log.error("The search index could not be built", exc_info=index.exception())
        if (known := model()) is not None:
            self._indexes.pop(known, None)


def rank_matches(model: LiveModel, index: TitleIndex, query: str, *, most: int, pace: Pace) -> list[str]:
    """The ids of the best matches: the item of that id, titles, ids that begin with the query. Raises OutOfTime."""
    found: dict[int, None] = {}
    if query in model.vocabulary:
        found[int(model.popular.places[model.vocabulary.index_of(query)])] = None
    if text := fold(query):
        found |= dict.fromkeys(index.find(text, most, pace))
    if len(found) < most:
        found |= dict.fromkeys(find_ids(model, query, most + len(found)))
    return model.vocabulary.decode(model.popular.order[list(found)[:most]].tolist())


def _build(titles: Iterable[str], pace: Pace) -> TitleIndex:
    began_s = time.perf_counter()
    index = TitleIndex.build(titles, pace)
    seconds = round(time.perf_counter() - began_s, 3)
    _log.info("Search index built", extra={"fields": {"seconds": seconds, "bytes": index.size_bytes}})
    return index

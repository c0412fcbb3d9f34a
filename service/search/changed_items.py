"""Finds items whose titles were changed since the bundle was made, and new ones, among those of the bundle.

Changed titles are folded when a search first meets them, and scanned one by one: there are few of them, and a search
that has to scan too many runs out of its time.
"""

from typing import NamedTuple

from service.catalogue.overlay import Overlay
from service.inference.model import LiveModel
from service.search.folding import fold
from service.search.item_ids import find_ids
from service.search.pace import Pace
from service.search.title_index import TitleIndex, list_needles, read_title
from service.store.catalogue import DELETED

EXACT, BY_ID = -1, 3
"""Kinds of matches: the item of that id, and items whose ids begin with the query. Between them list_needles'."""


class _Changed(NamedTuple):
    """The changed items, as a search sees them."""

    titles: dict[str, bytes]
    """Folded, with a line end before each; of those with metadata of their own."""
    deleted: set[str]
    new: set[str]
    """Those that the model does not know."""


class ChangedItems:
    """The titles of changed items. It belongs to the thread that searches."""

    def __init__(self, *, field: str) -> None:
        """`field` of an item's metadata is its title."""
        self._field = field
        self._folded: dict[str, tuple[bytes, bytes]] = {}
        """Record and title of each."""

    def rank(
        self, model: LiveModel, index: TitleIndex, overlay: Overlay, query: str, *, most: int, pace: Pace
    ) -> list[str]:
        """The ids of the best matches, as rank_matches has them; new items after all others of a kind.

        Raises OutOfTime.
        """
        changed = self._read(model, overlay, pace)
        order, ids = model.popular.order, model.vocabulary.item_ids

        def name(place: int) -> str:
            return ids[int(order[place]) - 1]

        kinds: dict[str, int] = {}
        if (query in model.vocabulary or query in changed.new) and query not in changed.deleted:
            kinds[query] = EXACT
        if text := fold(query):
            skip = {_find_place(model, item_id) for item_id in (*changed.titles, *changed.deleted)}
            for place, kind in index.match(text, most, pace, skip).items():
                kinds.setdefault(name(place), kind)
            for item_id, title in changed.titles.items():
                pace.rest()
                if text in title:
                    kind = next(kind for kind, needle in enumerate(list_needles(text)) if needle in title)
                    kinds.setdefault(item_id, kind)
        if len(kinds) < most:
            known = map(name, find_ids(model, query, most + len(kinds) + len(changed.deleted)))
            new = (item_id for item_id in changed.new if item_id.startswith(query))
            for item_id in (*known, *new):
                if item_id not in changed.deleted:
                    kinds.setdefault(item_id, BY_ID)
        return sorted(kinds, key=lambda item_id: (kinds[item_id], _find_place(model, item_id), item_id))[:most]

    def _read(self, model: LiveModel, overlay: Overlay, pace: Pace) -> _Changed:
        """The items of the overlay; a copy first, which the event loop does not change meanwhile."""
        before, self._folded = self._folded, {}
        changed = _Changed({}, set(), set())
        for item_id, record in overlay.records.copy().items():
            pace.rest()
            if record[:1] == DELETED:
                changed.deleted.add(item_id)
                continue
            if item_id not in model.vocabulary:
                changed.new.add(item_id)
            if len(record) > 1:
                known = before.get(item_id)
                if known is None or known[0] != record:
                    known = (record, b"\n" + fold(read_title(record[1:], self._field)))
                self._folded[item_id] = known
                changed.titles[item_id] = known[1]
        return changed


def _find_place(model: LiveModel, item_id: str) -> int:
    """An item's place in the model's popular list, its length for an unknown one."""
    index = model.vocabulary.index_of(item_id)
    return int(model.popular.places[index]) if index > 0 else len(model.popular.order)

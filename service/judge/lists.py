"""What the newest lists of a model look like: how many items, how popular ones, and what it knows of histories."""

from collections import deque
from typing import Final

from service.inference.popular import Popular
from service.judge.scoring import Score
from service.trial.guardrails import VariantObservations

LISTS: Final = 2_000


class NewestLists:
    """The newest LISTS of one model."""

    def __init__(self) -> None:
        self._lists: deque[tuple[tuple[str, ...], float, int, int]] = deque(maxlen=LISTS)
        """Items, the sum of their percentiles, items in the history, and how many of these the model does not know."""

    def add(self, score: Score, percentiles: "Percentiles") -> None:
        """Add the list of a trial."""
        popularity = sum(map(percentiles.look_up, score.top))
        self._lists.append((score.top, popularity, score.history_items, score.history_items - score.known_items))

    def observe(self) -> VariantObservations:
        """What the guardrails look at."""
        shown = sum(len(items) for items, *_ in self._lists)
        met = sum(history for _, _, history, _ in self._lists)
        if not shown:
            return VariantObservations(lists=len(self._lists))
        return VariantObservations(
            lists=len(self._lists),
            coverage=len({item for items, *_ in self._lists for item in items}),
            popularity=sum(popularity for _, popularity, _, _ in self._lists) / shown,
            unknown=sum(unknown for *_, unknown in self._lists) / met if met else 0.0,
        )


class Percentiles:
    """The popularity of items with the champion, from 0 to 1 for the most popular. One yardstick for both models."""

    def __init__(self, item_ids: tuple[str, ...], popular: Popular) -> None:
        """Take the champion's items in the order of their indexes, and its popular list."""
        last = max(1, len(item_ids) - 1)
        places = popular.places[1:].tolist()
        self._of: dict[str, float] = {
            item_id: 1 - place / last for item_id, place in zip(item_ids, places, strict=True)
        }

    def look_up(self, item_id: str) -> float:
        """An item's percentile; 0 for one that the champion does not know."""
        return self._of.get(item_id, 0.0)

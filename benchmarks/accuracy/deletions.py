"""What became of answered items without their first reason, beside another item of the history: ranks and shares."""

import itertools
import math
from collections.abc import Callable
from typing import Final, NamedTuple

from benchmarks.harness.open_loop import percentile
from service.api.fields import MAX_K


class Place(NamedTuple):
    """Where an item stands among all items but those of the history."""

    rank: int
    """MAX_K + 1 for all that are further down."""
    share: float
    """The logarithm of its part of the softmax over the MAX_K best scores; -inf further down."""


BANDS: Final = (1, 2, 3, 6, 11, 21, MAX_K + 1)
"""Where a new line of ranks begins."""
BEYOND: Final = Place(MAX_K + 1, -math.inf)


class Deletion(NamedTuple):
    """An answered item: where it stood, and where without its first reason and without another item of the history."""

    whole: Place
    reason: Place
    other: Place

    @property
    def by_rank(self) -> int:
        """By how many ranks further it fell without the reason than without the other."""
        return self.reason.rank - self.other.rank

    @property
    def by_share(self) -> float:
        """By how much more its share's logarithm fell; 0 where both are too far down."""
        return 0.0 if self.reason.share == self.other.share else self.other.share - self.reason.share


class Deletions(list[Deletion]):
    """What became of items without their first reason, beside another item of the history."""

    def count_where(self, holds: Callable[[Deletion], bool]) -> int:
        """Of how many something holds."""
        return sum(map(holds, self))

    @property
    def further(self) -> int:
        """Items that fell further without the reason."""
        return self.count_where(lambda one: one.by_rank > 0)

    @property
    def alike(self) -> int:
        """Items that fell as far without either."""
        return self.count_where(lambda one: one.by_rank == 0)

    @property
    def less(self) -> int:
        """Items that fell further without the other."""
        return self.count_where(lambda one: one.by_rank < 0)

    @property
    def share(self) -> float:
        """Of the cases in which the two differ."""
        return self.further / max(1, self.further + self.less)

    def describe(self) -> str:
        """In some lines."""
        every = max(1, len(self))
        broken = self.count_where(lambda one: (one.by_rank, one.by_share) > (0, 0))
        fell = {
            name: f"{sum(ranks) / every:.1f} ranks, at the median {percentile(ranks, 0.5):.0f}"
            for name, ranks in (
                ("reason", [one.reason.rank - one.whole.rank for one in self]),
                ("other", [one.other.rank - one.whole.rank for one in self]),
            )
        }
        lines = [
            f"of {len(self):,} items {self.further:,} fell further without their first reason, {self.less:,} without "
            f"the other item, {self.alike:,} as far; without the reason by {fell['reason']}, without the other by "
            f"{fell['other']}; {self.count_where(lambda one: one.reason.rank > MAX_K):,} and "
            f"{self.count_where(lambda one: one.other.rank > MAX_K):,} fell below rank {MAX_K}",
            f"further without the reason: {self.share:.1%} of those that differ, {self.further / every:.1%} of all "
            f"with ties as misses, {(self.further + self.alike / 2) / every:.1%} with ties as halves, "
            f"{broken / every:.1%} with ties broken by the share; by the share alone "
            f"{self.count_where(lambda one: one.by_share > 0) / every:.1%}",
        ]
        for first, last in itertools.pairwise(BANDS):
            there = Deletions(one for one in self if first <= one.whole.rank < last)
            if there:
                counts = f"{there.further:,} further, {there.alike:,} as far, {there.less:,} less"
                lines.append(f"  from ranks {first} to {last - 1}: {counts}")
        return "\n".join(lines)

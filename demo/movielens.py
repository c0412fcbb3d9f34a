"""MovieLens-100K as the demo needs it: each user's events in order, and titles."""

import csv
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

SHIFT_MS = 10_227 * 86_400_000
"""The ratings are of 1997 and 1998, which the service takes for a wrong clock: move them 28 years, weekdays kept."""


@dataclass(frozen=True)
class Rating:
    """One event of the log."""

    user: str
    item: str
    stars: float
    timestamp_ms: int

    def as_event(self, number: int) -> dict[str, object]:
        """The event as POST /events takes it; `number` counts a user's ratings, so that a repeat is a duplicate."""
        return {
            "event_id": f"ml-{self.user}-{number}",
            "user_id": self.user,
            "item_id": self.item,
            "type": "rating",
            "value": self.stars,
            "timestamp": self.timestamp_ms,
        }


def read_ratings(path: Path) -> dict[str, list[Rating]]:
    """Each user's ratings in time order, equal times in file order, as the trainer sorts them."""
    with path.open(encoding="utf-8", newline="") as file:
        ratings = [
            Rating(row["user"], row["item"], float(row["value"]), int(row["timestamp"]) * 1000 + SHIFT_MS)
            for row in csv.DictReader(file)
        ]
    ratings.sort(key=lambda rating: (rating.user, rating.timestamp_ms))
    return {user: list(group) for user, group in groupby(ratings, key=lambda rating: rating.user)}


def read_titles(path: Path) -> dict[str, str]:
    """Title and year of each item."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            row["item"]: f"{row['title']} ({row['year']})" if row["year"] else row["title"]
            for row in csv.DictReader(file)
        }

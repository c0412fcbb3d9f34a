"""MovieLens-100K as if every fourth of its 400 most rated films had come out yesterday."""

import csv
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import httpx

from demo.commands import DemoFailed
from demo.movielens import Rating
from demo.replay import post

MOST_RATED, EVERY = 400, 4
PAST = 0.7
"""The share of each user's other ratings that the first model learns from."""


def choose_new(ratings: Mapping[str, Sequence[Rating]]) -> frozenset[str]:
    """Every fourth of the most rated films."""
    counts = Counter(rating.item for log in ratings.values() for rating in log)
    ranked = sorted(counts, key=lambda item: (-counts[item], item))
    return frozenset(ranked[:MOST_RATED][EVERY - 1 :: EVERY])


def cut_past(ratings: Mapping[str, Sequence[Rating]], new: frozenset[str]) -> list[list[Rating]]:
    """What each user had rated before the films came out."""
    known = [[rating for rating in log if rating.item not in new] for log in ratings.values()]
    return [log[: max(1, int(PAST * len(log)))] for log in known]


def write_log(past: Sequence[Sequence[Rating]], file: Path) -> None:
    """The past as a log for the trainer, in milliseconds of our days."""
    with file.open("w", encoding="utf-8", newline="") as output:
        writer = csv.writer(output)
        writer.writerow(("user", "item", "timestamp"))
        writer.writerows((rating.user, rating.item, rating.timestamp_ms) for log in past for rating in log)


@dataclass
class Watching:
    """Users who go on where their past ended, in turn, at a steady rate."""

    client: httpx.Client
    known: dict[str, list[Rating]]
    """What each user is yet to rate of the films that were there, in order, the last first."""
    fresh: dict[str, list[Rating]]
    """And of the new ones."""
    numbers: dict[str, int]
    """How many events each user has sent."""
    random: Random
    with_new: bool = False

    @classmethod
    def begin(
        cls,
        client: httpx.Client,
        ratings: Mapping[str, Sequence[Rating]],
        past: Sequence[Sequence[Rating]],
        new: frozenset[str],
    ) -> "Watching":
        """Everybody at the end of their past."""
        numbers = {log[0].user: len(log) for log in past}
        known, fresh = {}, {}
        for user, log in ratings.items():
            known[user] = [rating for rating in log if rating.item not in new][numbers[user] :][::-1]
            fresh[user] = [rating for rating in log if rating.item in new][::-1]
        return cls(client, known, fresh, numbers, Random(1))  # noqa: S311 - nothing to be kept secret

    def play(self, rate: float, seconds: float) -> Iterator[float]:
        """Send events for a while; yields the seconds that have passed, after each. Raises DemoFailed."""
        began_s = time.monotonic()
        for number, user in enumerate(self._take_turns(int(rate * seconds))):
            self._send(user)
            yield time.monotonic() - began_s
            time.sleep(max(0.0, began_s + (number + 1) / rate - time.monotonic()))

    def _take_turns(self, count: int) -> Iterator[str]:
        while count:
            users = [user for user in self.numbers if self.known[user] or (self.with_new and self.fresh[user])]
            if not users:
                raise DemoFailed("every rating of MovieLens-100K has been sent")
            self.random.shuffle(users)
            yield from users[:count]
            count -= min(count, len(users))

    def _send(self, user: str) -> None:
        of_new = self.with_new and self.fresh[user] and (not self.known[user] or self.random.random() < 0.5)
        rating = (self.fresh if of_new else self.known)[user].pop()
        now = replace(rating, timestamp_ms=int(time.time() * 1000))
        answer = post(self.client, "/events", now.as_event(self.numbers[user]))
        if answer["accepted"] != 1:
            raise DemoFailed(f"POST /events did not take an event of user {user}: {answer}")
        self.numbers[user] += 1

"""MovieLens-100K as if every fourth of its 400 most rated films had come out yesterday."""

import csv
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import httpx

from demo.commands import DemoFailed
from demo.movielens import Rating
from demo.replay import EVENTS_PER_REQUEST, send_events

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
    sent: int = 0
    sent_new: int = 0
    _turn: list[str] = field(default_factory=list)

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
        """Send events for a while, one a request; yields the seconds that passed, after each. Raises DemoFailed."""
        began_s = time.monotonic()
        for number in range(int(rate * seconds)):
            self._post([self._take(self._choose_user())])
            yield time.monotonic() - began_s
            time.sleep(max(0.0, began_s + (number + 1) / rate - time.monotonic()))

    def send_at_once(self, share: float) -> Iterator[int]:
        """Send a share of what each user is yet to rate, as fast as it is taken; yields how many. Raises DemoFailed."""
        left = {user: int(share * self._count_left(user)) for user in self.numbers}
        turns = [user for turn in range(max(left.values())) for user in self._shuffle(left) if left[user] > turn]
        for start in range(0, len(turns), EVENTS_PER_REQUEST):
            batch = [self._take(user) for user in turns[start : start + EVENTS_PER_REQUEST]]
            self._post(batch)
            yield len(batch)

    def count_left(self) -> int:
        """How many ratings are yet to be sent."""
        return sum(map(self._count_left, self.numbers))

    def _choose_user(self) -> str:
        """Everybody who has something left takes a turn, then all again in another order."""
        while True:
            if not self._turn:
                self._turn = self._shuffle(user for user in self.numbers if self._count_left(user))
            if not self._turn:
                raise DemoFailed("every rating of MovieLens-100K has been sent")
            if self._count_left(user := self._turn.pop()):
                return user

    def _shuffle(self, users: Iterable[str]) -> list[str]:
        shuffled = list(users)
        self.random.shuffle(shuffled)
        return shuffled

    def _count_left(self, user: str) -> int:
        return len(self.known[user]) + (len(self.fresh[user]) if self.with_new else 0)

    def _take(self, user: str) -> dict[str, object]:
        """A user's next event, of now."""
        of_new = self.with_new and self.fresh[user] and (not self.known[user] or self.random.random() < 0.5)
        rating = (self.fresh if of_new else self.known)[user].pop()
        event = replace(rating, timestamp_ms=int(time.time() * 1000)).as_event(self.numbers[user])
        self.numbers[user] += 1
        self.sent += 1
        self.sent_new += bool(of_new)
        return event

    def _post(self, events: Sequence[Mapping[str, object]]) -> None:
        answer = send_events(self.client, events)
        if answer["accepted"] + answer["duplicates"] != len(events):
            raise DemoFailed(f"POST /events took {answer['accepted']} of {len(events)} events: {answer}")

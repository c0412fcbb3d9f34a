"""What a retraining is measured by: the newest events, of which neither model has learned.

Every event of the stretch is a question whose history is all that came before it, as the service is asked, unless its
item stands in that history: seen items are never recommended. A user may have many questions, so that intervals draw
users, not questions.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from training.data.histories import Histories
from training.data.interactions import Log
from training.data.split import Questions, Split, find_moments, split_by_time
from training.errors import DataError

LEAST_EVENTS, LEAST_SHARE = 2000, 0.05
"""The newest max(2,000 events, 5 %) are held out, and as many before them to stop by."""
LEAST_QUESTIONS = 300
"""Fewer say too little."""
MOST_QUESTIONS = 10_000
"""More are drawn from: they would narrow no interval that matters."""
_SEED = 12345


@dataclass(frozen=True)
class HeldOut:
    """A log cut for a retraining: `split.test` is what results.json asks, one question a user; `asked` is every one."""

    split: Split
    share: float
    """data.test_share of the same cut."""
    from_ms: int
    asked: Questions
    positions: NDArray[np.int64]
    """Where the target of each question stands in the log (B)."""
    owners: NDArray[np.int64]
    """The user of each question (B)."""

    @property
    def held_out_from(self) -> str:
        """When the held-out events begin, RFC 3339 in UTC."""
        return f"{datetime.fromtimestamp(self.from_ms // 1000, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def count_new(log: Log, learned_until_ms: int | None) -> int:
    """How many events are newer than the champion's last one; all, where nobody knows it. Raises DataError."""
    if log.timestamps_ms is None:
        raise DataError("the log has no times, so nobody can say what is new in it: name data.timestamp_column")
    return len(log.items) if learned_until_ms is None else int((log.timestamps_ms > learned_until_ms).sum())


def hold_out(log: Log, new: int) -> HeldOut:
    """Hold the newest events out, a third of the `new` ones at most: the rest stops the training, and trains.

    So the champion has learned from no question, and the candidate has learned something that the champion has not.
    Raises DataError where there are no such events.
    """
    n = len(log.items)
    held = min(max(LEAST_EVENTS, int(LEAST_SHARE * n)), new // 3, (n - 1) // 3)
    if held < 1:
        raise DataError("the log is too short to hold events out")
    share = held / n
    validated_ms, tested_ms = find_moments(log, share)
    split = split_by_time(log, share)
    validation, _ = _ask_every(log, validated_ms, tested_ms)
    asked, positions = _ask_every(log, tested_ms, None)
    return HeldOut(
        split=replace(split, validation=validation),
        share=share,
        from_ms=tested_ms,
        asked=asked,
        positions=positions,
        owners=log.histories.find_owners(asked.histories) if len(asked) else positions,
    )


def _ask_every(log: Log, from_ms: int, before_ms: int | None) -> tuple[Questions, NDArray[np.int64]]:
    """A question for each event in a stretch of time that follows a history without its item; and their places."""
    assert log.timestamps_ms is not None  # noqa: S101 - find_moments has seen that there are times
    users, positions = log.histories.find_positions()
    asked = log.timestamps_ms >= from_ms
    if before_ms is not None:
        asked &= log.timestamps_ms < before_ms
    first = np.zeros(len(positions), dtype=bool)
    first[np.unique(users * (len(log.vocabulary) + 1) + log.items, return_index=True)[1]] = True
    places = np.flatnonzero(asked & first & (positions > log.offsets[users]))
    if len(places) > MOST_QUESTIONS:
        places = np.sort(np.random.default_rng(_SEED).permutation(places)[:MOST_QUESTIONS])
    histories = Histories(log.items, log.offsets[users[places]], positions[places], log.timestamps_ms[places])
    return Questions(histories, log.items[places]), places

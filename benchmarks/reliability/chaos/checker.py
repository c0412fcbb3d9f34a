"""What clients sent against what the store holds after it healed: every promise of POST /events, broken or kept.

The outcomes are those of Jepsen: `ok` was acknowledged, `refused` was told that it never will be stored, `unknown` may
be there or not (no answer, or a 503). Event ids in a run are unique over all users, so that a mix-up of users shows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["ok", "refused", "unknown"]
Kind = Literal[
    "lost",
    "phantom",
    "refused yet stored",
    "duplicate",
    "misordered",
    "altered",
    "cross-user",
    "history is not the log's tail",
    "mark without entry",
    "entry without mark",
]


@dataclass(slots=True)
class Sent:
    """One event with all attempts to send it; times are seconds of one monotonic clock."""

    user_id: str
    event_id: str
    item_id: str
    timestamp_ms: int
    invoked_s: float
    """When the first attempt began."""
    completed_s: float = float("inf")
    """When it was acknowledged."""
    outcome: Outcome = "unknown"
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One event as it is stored."""

    user_id: str
    event_id: str
    item_id: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store and its archive hold."""

    log: Mapping[str, Sequence[Entry]]
    """By user, in the order of the log."""
    histories: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    marks: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """One promise broken for one event, or for a user's whole history."""

    kind: Kind
    user_id: str
    event_id: str = ""


def check(sent: Iterable[Sent], stored: Stored, *, history_length: int, marks_kept: int) -> list[Violation]:
    """Every violation. Marks beyond the newest `marks_kept` entries of a user may be forgotten already."""
    by_id = {event.event_id: event for event in sent}
    found = list(_check_presence(by_id, stored))
    for user_id in {*stored.log, *stored.histories, *stored.marks}:
        log = stored.log.get(user_id, ())
        found += _check_entries(user_id, log, by_id)
        found += _check_order(log, by_id)
        found += _check_history(user_id, log, stored.histories.get(user_id, ()), history_length)
        found += _check_marks(user_id, log, stored.marks.get(user_id, frozenset()), marks_kept)
    return found


def _check_presence(by_id: Mapping[str, Sent], stored: Stored) -> Iterator[Violation]:
    present = {(entry.user_id, entry.event_id) for log in stored.log.values() for entry in log}
    for event in by_id.values():
        there = (event.user_id, event.event_id) in present
        if event.outcome == "ok" and not there:
            yield Violation("lost", event.user_id, event.event_id)
        if event.outcome == "refused" and there:
            yield Violation("refused yet stored", event.user_id, event.event_id)


def _check_entries(user_id: str, log: Sequence[Entry], by_id: Mapping[str, Sent]) -> Iterator[Violation]:
    """Each entry was sent once, by this user, as it stands there."""
    for event_id, count in Counter(entry.event_id for entry in log).items():
        if count > 1:
            yield Violation("duplicate", user_id, event_id)
    for entry in log:
        event = by_id.get(entry.event_id)
        if event is None:
            yield Violation("phantom", user_id, entry.event_id)
        elif not event.user_id == entry.user_id == user_id:
            yield Violation("cross-user", user_id, entry.event_id)
        elif (event.item_id, event.timestamp_ms) != (entry.item_id, entry.timestamp_ms):
            yield Violation("altered", user_id, entry.event_id)


def _check_order(log: Sequence[Entry], by_id: Mapping[str, Sent]) -> Iterator[Violation]:
    """An event that was acknowledged before another was sent stands before it."""
    latest_invoked_s = float("-inf")
    for entry in log:
        event = by_id.get(entry.event_id)
        if event is None:
            continue
        if event.completed_s < latest_invoked_s:
            yield Violation("misordered", entry.user_id, entry.event_id)
        latest_invoked_s = max(latest_invoked_s, event.invoked_s)


def _check_history(
    user_id: str, log: Sequence[Entry], history: Sequence[Entry], history_length: int
) -> Iterator[Violation]:
    """The history is the log in the order of time, equal times as they arrived, cut to the newest."""
    for entry in history:
        if entry.user_id != user_id:
            yield Violation("cross-user", user_id, entry.event_id)
    if list(history) != sorted(log, key=lambda entry: entry.timestamp_ms)[-history_length:]:
        yield Violation("history is not the log's tail", user_id)


def _check_marks(user_id: str, log: Sequence[Entry], marks: frozenset[str], marks_kept: int) -> Iterator[Violation]:
    for event_id in marks - {entry.event_id for entry in log}:
        yield Violation("mark without entry", user_id, event_id)
    for event_id in {entry.event_id for entry in log[-marks_kept:]} - marks:
        yield Violation("entry without mark", user_id, event_id)

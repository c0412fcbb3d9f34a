"""What became of the events of a log, in numbers that add up, and in words."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from service.history_import.spill import UserRows
from service.store.records import Outcome

Fate = Literal[
    "stored", "known", "contradicted", "repeated", "contradicting", "old", "late", "erased", "damaged",
    "type", "value", "before", "missing", "bad",
]  # fmt: skip

_FATES: Final[dict[Outcome, Fate]] = {
    Outcome.ACCEPTED: "stored",
    Outcome.LATE: "late",
    Outcome.DUPLICATE: "known",
    Outcome.CONFLICT: "contradicted",
    Outcome.ERASED: "erased",
    Outcome.DAMAGED: "damaged",
}
_WORDS: Final[dict[Fate, str]] = {
    "stored": "stored",
    "known": "in the store already",
    "contradicted": "in the store already with another value, which stays",
    "repeated": "in the log more than once: the same user, item, type and time",
    "contradicting": "with the user, item, type and time of another event but another value: the first one counts",
    "old": "older than the newest {kept:,} of their user, which --history-length remembers",
    "late": "older than everything in the full history of their user",
    "erased": "from before their user was erased",
    "damaged": "of users whose stored data is damaged (docs/runbook.md, Damaged keys): NOT stored",
    "type": "of other types than --types",
    "value": "with a value below --min-value",
    "before": "at or after --before",
    "missing": "without a user or an item, the first in line {first_missing}",
    "bad": "bad: {first_bad}",
}


@dataclass(slots=True)
class Report:
    """Counts the events of one import."""

    read: int = 0
    """Events that the log gave, left out or not; without those that lack an id or are bad."""
    fates: Counter[Fate] = field(default_factory=Counter)
    users: int = 0
    done: int = 0
    """Events of users who are done with."""
    first_missing: int | None = None
    first_bad: str = ""

    @property
    def wanted(self) -> int:
        """How many of the events that were read are not left out by an option."""
        return self.read - sum(self.fates[reason] for reason in ("type", "value", "before"))

    def note_bad(self, sentence: str) -> None:
        """Count a bad row; the first one's sentence is kept."""
        self.fates["bad"] += 1
        self.first_bad = self.first_bad or sentence

    def note_user(self, user: UserRows) -> None:
        """Count what is not sent of a user."""
        self.users += 1
        self.fates["repeated"] += user.repeated
        self.fates["contradicting"] += user.contradicting
        self.fates["old"] += user.old
        self.done += user.repeated + user.contradicting + user.old

    def note_outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """Count what the store said."""
        for outcome, count in Counter(outcomes).items():
            self.fates[_FATES[outcome]] += count
            self.done += count

    def describe(self, *, kept: int) -> list[str]:
        """A line for each thing that became of events, the most wanted first."""
        words = {"kept": kept, "first_missing": self.first_missing, "first_bad": self.first_bad}
        return [
            f"{self.fates[fate]:>13,} {text.format_map(words)}"
            for fate, text in _WORDS.items()
            if self.fates[fate] or fate == "stored"
        ]

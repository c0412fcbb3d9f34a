"""What the judge counts: gains of live events by version and hour, what it skipped, and how far it got in the log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Self, get_args

from model.contract.deployment.document import VariantName
from model.contract.manifest import is_count, is_number

HOURS_KEPT: Final = 168
SERIES_KEPT: Final = 24
"""Versions whose totals are kept, the newest ones; a version that was candidate and champion counts twice."""
ATTRIBUTIONS_KEPT: Final = 240
"""Event types and versions whose attributed events are kept, the newest ones."""
REFUSALS_KEPT: Final = 8

Skip = Literal[
    "seen",
    "type",
    "late",
    "erased",
    "not_found",
    "behind",
    "gone",
    "capped",
    "no_model",
    "failed",
    "damaged",
    "imported",
]
"""Why an event is no trial.

seen: its item was in the user's history already. type: not one of the types that are judged. late: older than all that
is remembered. erased: its user's history is gone. not_found: the history does not hold it. behind: the judge had no
time for it. gone: it left the log before it was read. capped: its user had enough trials this hour. no_model: no
champion was loaded. failed: the champion failed. damaged: the log or the history holds what the service did not write.
imported: it is from a log file (`nextitem-serve import --with-log`).
"""
SKIPS: Final[tuple[Skip, ...]] = get_args(Skip)
VERDICTS: Final = ("canary", "promote", "return", "rollback")
"""What the judge does to a deployment: with a candidate on trial, or with a champion whose engine fails at once."""
CUTOFF: Final = 10
"""The list that gains look at: HR@10 and NDCG@10."""


class Series(NamedTuple):
    """Whose gains are summed: a version, and what it was then."""

    variant: VariantName
    version: str


@dataclass(slots=True)
class Sums:
    """Sums over trials. The gains of an item that the model does not know are 0."""

    trials: int = 0
    hits: int = 0
    """Trials whose item was among the first CUTOFF."""
    ndcg: float = 0.0
    """Sum of NDCG@10."""
    mrr: float = 0.0
    """Sum of 1 / rank, over the first 100."""
    unknown: int = 0

    def add(self, other: "Sums") -> None:
        """Add other sums to these."""
        self.trials += other.trials
        self.hits += other.hits
        self.ndcg += other.ndcg
        self.mrr += other.mrr
        self.unknown += other.unknown

    def to_list(self) -> list[float]:
        """As a row of live.json."""
        return [self.trials, self.hits, round(self.ndcg, 6), round(self.mrr, 6), self.unknown]

    @classmethod
    def from_list(cls, row: object) -> Self:
        """Read a row. Raises ValueError."""
        if not (isinstance(row, list) and len(row) == 5 and all(map(is_number, row))):
            raise ValueError("no row of sums")
        trials, hits, ndcg, mrr, unknown = row
        if not all(is_count(value, least=0) for value in (trials, hits, unknown)):
            raise ValueError("no counts")
        if not (hits <= trials and unknown <= trials and 0 <= ndcg <= trials and 0 <= mrr <= trials):
            raise ValueError("sums that no trials give")
        return cls(trials, hits, float(ndcg), float(mrr), unknown)


class Cursor(NamedTuple):
    """A place in one partition of the log."""

    entry_id: str
    """The last entry that was counted."""
    counted: int
    """How many entries the partition had been given up to it, in its life."""


@dataclass(slots=True)
class TrialFigures:
    """A trial in figures for people, as of the last event."""

    e_values: Mapping[str, float]
    """Evidence by verdict (promote, return): at least 1 / alpha proves it."""
    difference: tuple[float, float, float] | None
    """Candidate - champion in NDCG@10: mean, and both ends of its interval."""
    pairs: int


@dataclass(slots=True)
class LiveScores:
    """The content of live.json."""

    cursors: dict[int, Cursor] = field(default_factory=dict)
    """By partition of the log."""
    totals: dict[Series, Sums] = field(default_factory=dict)
    """Since the file was begun."""
    hours: dict[tuple[int, Series], Sums] = field(default_factory=dict)
    """By hour since 1970."""
    skipped: dict[Skip, int] = field(default_factory=lambda: dict.fromkeys(SKIPS, 0))
    attributed: dict[tuple[Series, str], int] = field(default_factory=dict)
    """Events by type that came from an answer of the version."""
    trial: Mapping[str, Any] | None = None
    """The trial's state, which service/trial reads and writes."""
    figures: TrialFigures | None = None
    verdicts: dict[str, int] = field(default_factory=dict)
    """Verdicts that the judge applied; one of VERDICTS that is missing was never applied."""
    refused: dict[str, str] = field(default_factory=dict)
    """Versions that the judge cannot load, and why."""
    loading: dict[str, int] = field(default_factory=dict)
    """How often the load of a version was begun and not ended: a graph may end the judge."""
    offline: dict[Series, float] = field(default_factory=dict)
    """NDCG@10 of the models that are judged now, as their trainer measured it."""
    lag_s: float = 0.0
    """Age of the oldest event that waits to be judged."""
    at_s: float = 0.0
    """When the file was written, in seconds since 1970."""

    def count(self, series: Series, hour: int, sums: Sums) -> None:
        """Count trials of an hour since 1970."""
        self.totals.setdefault(series, Sums()).add(sums)
        self.hours.setdefault((hour, series), Sums()).add(sums)

    def skip(self, reason: Skip, events: int = 1) -> None:
        """Count events that are no trials."""
        self.skipped[reason] += events

    def attribute(self, series: Series, event_type: str) -> None:
        """Count an event that came from an answer."""
        key = (series, event_type)
        self.attributed[key] = self.attributed.pop(key, 0) + 1  # the newest stand last

    @property
    def events(self) -> int:
        """How many events were counted: the trials of champions, and the skipped."""
        trials = sum(sums.trials for series, sums in self.totals.items() if series.variant == "champion")
        return trials + sum(self.skipped.values())

    def sum_hours(self, version: str, *, since_hour: int = 0) -> Sums:
        """The sums of a version over the hours that are kept, from one of them on."""
        total = Sums()
        for (hour, series), sums in self.hours.items():
            if series.version == version and hour >= since_hour:
                total.add(sums)
        return total

    def prune(self, hour: int) -> None:
        """Drop what is too old to keep at an hour since 1970."""
        self.hours = {key: sums for key, sums in self.hours.items() if abs(hour - key[0]) < HOURS_KEPT}
        self.totals = dict(list(self.totals.items())[-SERIES_KEPT:])
        self.attributed = dict(list(self.attributed.items())[-ATTRIBUTIONS_KEPT:])
        self.refused = dict(list(self.refused.items())[-REFUSALS_KEPT:])

"""A trial under way: which candidate against which champion, since when, and what the paired events said so far.

Users click what they are shown, so that an event favours whoever served its user. Events are kept apart by that
(`Ground`): where the champion served, a candidate that looks better is better; where the candidate served, one that
looks worse is worse.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

from model.contract.deployment.document import MODES, Mode, TrialTerms
from model.contract.manifest import is_count, is_plain_name
from service.trial.evidence import Evidence, TrialMalformed, Visit, Wager

Ground = Literal["home", "away", "organic"]
"""Who served the user of an event. home: the champion. away: the candidate. organic: nobody."""
GROUNDS: tuple[Ground, ...] = get_args(Ground)

VISIT_MS = 3_600_000
"""A visit lasts an hour from its first event."""
MAX_VISITS = 100_000
"""Visits kept in memory, some 20 MB; the oldest give way."""


@dataclass(kw_only=True)
class Trial:
    """The state of one trial. Times are the store's, in milliseconds since 1970."""

    candidate: str
    champion: str
    terms: TrialTerms
    began_ms: int
    began_generation: int | None = None
    """The deployment's when the trial began; None where it is not known."""
    mode: Mode = "shadow"
    canary_since_ms: int | None = None
    """When the canary began; None before."""
    last_ms: int | None = None
    """When the newest event that was recorded happened; None before the first."""
    evidence: dict[Ground, Evidence] = field(default_factory=lambda: dict.fromkeys(GROUNDS, Evidence()))
    _visits: dict[tuple[Ground, int], tuple[int, Visit]] = field(default_factory=dict, repr=False, compare=False)
    """Of each visit under way when it began and what it came to, oldest first. In memory only: it is about people."""

    @classmethod
    def begin(
        cls, candidate: str, champion: str, terms: TrialTerms, began_ms: int, *, generation: int | None = None
    ) -> Self:
        """A trial of which nothing is known yet, in a deployment of this generation."""
        return cls(candidate=candidate, champion=champion, terms=terms, began_ms=began_ms, began_generation=generation)

    def continues(self, candidate: str | None, champion: str, terms: TrialTerms) -> bool:
        """Whether what was recorded still counts: for other versions or other margins a new trial begins."""
        margins = (terms.margin, terms.return_margin) == (self.terms.margin, self.terms.return_margin)
        return margins and (candidate, champion) == (self.candidate, self.champion)

    def follow(self, mode: Mode, terms: TrialTerms, at_ms: int) -> None:
        """Take over what the deployment says now. A canary that begins, or begins again, starts its hours anew.

        Raises ValueError where the margins changed: see `continues`.
        """
        if not self.continues(self.candidate, self.champion, terms):
            raise ValueError("a trial of other margins is another trial")
        if mode != "canary":
            self.canary_since_ms = None
        elif self.canary_since_ms is None:
            self.canary_since_ms = at_ms
        self.mode, self.terms = mode, terms

    def record(
        self, champion_gain: float, candidate_gain: float, *, ground: Ground, at_ms: int, visitor: int | None = None
    ) -> None:
        """Count one event that both models ranked: their gains of NDCG@10, from 0 to 1, else ValueError.

        `visitor` is a hash of the user. Events of one visitor within an hour are one bet; without it an event is a
        visit of its own.
        """
        visit = self._find_visit(ground, visitor, at_ms)
        self.evidence[ground], visit = self.evidence[ground].weigh(
            champion_gain,
            candidate_gain,
            margin=self.terms.margin,
            return_margin=0.0 if ground == "away" else self.terms.return_margin,
            visit=visit,
        )
        if visitor is not None:
            began_ms, _ = self._visits.get((ground, visitor), (at_ms, visit))
            self._visits[ground, visitor] = began_ms, visit
        self.last_ms = at_ms if self.last_ms is None else max(self.last_ms, at_ms)

    def _find_visit(self, ground: Ground, visitor: int | None, at_ms: int) -> Visit:
        """The visit that this event continues, or a new one. Visits that are over are forgotten."""
        while self._visits:
            oldest = next(iter(self._visits))
            if len(self._visits) <= MAX_VISITS and at_ms - self._visits[oldest][0] < VISIT_MS:
                break
            del self._visits[oldest]
        if visitor is None:
            return Visit()
        began_ms, visit = self._visits.get((ground, visitor), (at_ms, Visit()))
        if at_ms - began_ms < VISIT_MS:
            return visit
        del self._visits[ground, visitor]
        return Visit()

    @property
    def neutral(self) -> Evidence:
        """What events say whose users the candidate did not serve."""
        return self.evidence["home"] + self.evidence["organic"]

    @property
    def n(self) -> int:
        """How many paired events were recorded."""
        return sum(evidence.tally.n for evidence in self.evidence.values())

    @property
    def better(self) -> Wager:
        """The evidence that decides on promotion: where the candidate has no advantage."""
        return self.neutral.better

    @property
    def worse(self) -> Wager:
        """The evidence that decides on return: where the candidate has the advantage, once it answers anybody."""
        return self.evidence["away"].worse if self.mode == "canary" else self.neutral.worse

    def estimate_more_events(self) -> int | None:
        """About how many more events reach a verdict where they go as those so far, to two digits; None: none does.

        Events of the ground that the verdict looks at. At least what `min_trials` still wants.
        """
        missing = max(0, self.terms.min_trials - self.n)
        against = self.evidence["away"].tally.n if self.mode == "canary" else self.neutral.tally.n
        more = [
            max(missing, total - n)
            for wager, n in ((self.better, self.neutral.tally.n), (self.worse, against))
            if (total := wager.estimate_total(n, self.terms.alpha)) is not None
        ]
        return round_to_two_digits(min(more)) if more else None

    def to_dict(self) -> dict[str, Any]:
        """The trial as JSON knows it, some 2 KiB. Of the terms only the margins: the rest is the deployment's."""
        return {
            "candidate": self.candidate,
            "champion": self.champion,
            "margins": [self.terms.margin, self.terms.return_margin],
            "began_ms": self.began_ms,
            "began_generation": self.began_generation,
            "mode": self.mode,
            "canary_since_ms": self.canary_since_ms,
            "last_ms": self.last_ms,
            "evidence": {ground: self.evidence[ground].to_dict() for ground in GROUNDS},
        }

    @classmethod
    def from_dict(cls, document: object, terms: TrialTerms) -> Self:
        """Read what `to_dict` wrote. Raises TrialMalformed, also where the evidence weighed other margins."""
        if not isinstance(document, Mapping):
            raise TrialMalformed("a trial must be an object")
        for name in ("candidate", "champion"):
            if not is_plain_name(document.get(name)):
                raise TrialMalformed(f"{name!r} must be the name of a version")
        if document.get("mode") not in MODES:
            raise TrialMalformed(f"'mode' must be one of {', '.join(MODES)}")
        for name, optional in (("began_ms", False), ("canary_since_ms", True), ("last_ms", True)):
            value = document.get(name)
            if not (is_count(value, least=0) or (optional and value is None)):
                raise TrialMalformed(f"{name!r} must be a time in milliseconds")
        generation = document.get("began_generation")
        if generation is not None and not is_count(generation, least=0):
            raise TrialMalformed("'began_generation' must be a generation of the deployment")
        if document.get("margins") != [terms.margin, terms.return_margin]:
            raise TrialMalformed("'margins' are not those of the deployment")
        evidence = document.get("evidence")
        if not isinstance(evidence, Mapping):
            raise TrialMalformed("'evidence' must be an object")
        trial = cls.begin(
            document["candidate"], document["champion"], terms, document["began_ms"], generation=generation
        )
        return replace(
            trial,
            mode=document["mode"],
            canary_since_ms=document["canary_since_ms"],
            last_ms=document["last_ms"],
            evidence={ground: Evidence.from_dict(evidence.get(ground)) for ground in GROUNDS},
        )


def round_to_two_digits(value: float) -> int:
    """12,345 becomes 12,000: an estimate that does not look like a count."""
    return int(float(f"{value:.2g}"))

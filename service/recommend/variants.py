"""Who answers: the variants in use, as one immutable object. A swap exchanges the one reference to it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from model.contract.deployment.document import VariantName
from service.api.ranker import NOT_LOADED, NOT_PUBLISHED, RANKERS, names_version
from service.errors import Invalid, VariantUnavailable
from service.ranking.recommendation_id import RecommendationIds
from service.ranking.role import Role
from service.recommend.assignment import assign
from service.recommend.variant import Variant
from service.store.variant_counts import VariantTally


class Choice(NamedTuple):
    """Who answers a request."""

    variant: Variant
    assigned: VariantName | None = None
    """What the user is assigned to while a candidate is in canary. None: the request counts for no trial."""
    tally: VariantTally | None = None
    """Where it counts."""
    on_trial: bool = False
    """Whether the variant is the candidate, and the champion answers where it does not."""


@dataclass(frozen=True, eq=False)
class Variants:
    """The variants of one generation of the deployment. `candidate` is None unless one answers a share of users."""

    generation: int
    champion: Variant
    candidate: Variant | None = None
    """None, too, while it is not loaded: the champion answers its users."""
    share: float = 0.0
    """Share of users that the candidate answers, 0 to 1. 0 unless there is one in canary."""
    salt: str = ""
    """Decides, with a user's id, whether the candidate answers."""
    ids: RecommendationIds = field(default_factory=lambda: RecommendationIds(""))
    """Makes the ids of answers."""
    tally: VariantTally | None = None
    """What this worker counts of both; None without a canary."""
    folder_id: str = ""
    """Of the deployment; "" before one was read."""
    compared: tuple[Variant, ...] = ()
    """Other versions, which answer only requests that name them."""

    @property
    def all(self) -> tuple[Variant, ...]:
        """The champion, the candidate if there is one, and the others."""
        return (self.champion, *(() if self.candidate is None else (self.candidate,)), *self.compared)

    @property
    def rankers(self) -> list[str]:
        """What a request may name as its ranker: words, and versions that are called by none of them."""
        model = self.champion.model
        words = [word for word in RANKERS if word not in NOT_PUBLISHED or model.find_counted(word) is not None]
        return words + [variant.version for variant in self.all if names_version(variant.version)]

    @property
    def read_events(self) -> bool:
        """Whether one of them takes event features besides the items of a history."""
        return any(variant.model.reads_events for variant in self.all)

    def take_roles(self) -> None:
        """Tell each variant what it is from now on, on the loop."""
        self.champion.assume(Role("champion", self.generation, self.ids), self.tally)
        if self.candidate is not None:
            role = Role("candidate", self.generation, self.ids)
            self.candidate.assume(role, self.tally, champion=self.champion, share=self.share)
        for variant in self.compared:
            variant.assume(Role("comparison", self.generation, self.ids), None, share=0.0)

    def pick_compared(self, ranker: str, forced: VariantName | None = None) -> Choice:
        """Who answers a request by its ranker, which may be a version, or the one that it names; no trial counts it.

        Raises Invalid if the version is not loaded, and VariantUnavailable if the one that is named is not in use.
        """
        if not names_version(ranker):
            return self.pick(None, forced)
        for variant in self.all:
            if variant.version == ranker:
                return Choice(variant)
        raise Invalid([NOT_LOADED])

    def pick(self, user_id: str | None, forced: VariantName | None = None) -> Choice:
        """Who answers a user, or the one that the request names. Raises VariantUnavailable if that is not in use."""
        if forced is not None:
            variant = self.champion if forced == "champion" else self.candidate
            if variant is None:
                raise VariantUnavailable
            return Choice(variant)
        if self.tally is None or user_id is None:
            return Choice(self.champion)
        assigned = assign(user_id, salt=self.salt, share=self.share)
        if assigned == "candidate" and self.candidate is not None:
            return Choice(self.candidate, assigned, self.tally, on_trial=True)
        return Choice(self.champion, assigned, self.tally)

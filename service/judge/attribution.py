"""Which events came from an answer, by the recommendation id that clients send back: click rates by version."""

from collections import OrderedDict
from typing import Final

from model.contract.deployment.document import Deployment
from model.contract.deployment.live_sums import LiveScores, Series
from service.judge.events import LoggedEvent
from service.ranking.recommendation_id import Origin, RecommendationIds

IDS_KEPT: Final = 100_000
"""Ids that were counted, some 20 MB; the oldest give way. In memory: a restart may count an id twice."""
CLOCK_SLACK_MS: Final = 300_000
"""How far the clocks of a service and its store may be apart."""
CANDIDATES_KEPT: Final = 64
_HOUR_MS: Final = 3_600_000


class Attribution:
    """Counts the first event of each recommendation id that one of this folder's models made, by version and type."""

    def __init__(self, scores: LiveScores, *, within_hours: float) -> None:
        self._scores = scores
        self._within_ms = within_hours * _HOUR_MS
        self._counted: OrderedDict[str, None] = OrderedDict()
        self._candidates: OrderedDict[int, str | None] = OrderedDict()
        """By generation, as far as this process saw them."""
        self._deployment: Deployment | None = None
        self._ids: RecommendationIds | None = None

    def follow(self, deployment: Deployment | None) -> None:
        """Take over what the deployment says now."""
        if deployment is None or deployment is self._deployment:
            return
        if self._deployment is None or self._deployment.id_key != deployment.id_key:
            self._ids = RecommendationIds(deployment.id_key)
        self._deployment = deployment
        self._candidates[deployment.generation] = deployment.candidate
        while len(self._candidates) > CANDIDATES_KEPT:
            self._candidates.popitem(last=False)

    def count(self, event: LoggedEvent) -> None:
        """Count an event if it came from an answer that a model made."""
        if event.recommendation_id is None or self._ids is None or self._deployment is None:
            return
        origin = self._ids.read(event.recommendation_id, event.user_id)
        if origin is None or not origin.from_model or event.recommendation_id in self._counted:
            return
        if not -CLOCK_SLACK_MS <= event.accepted_ms - origin.made_ms <= self._within_ms + CLOCK_SLACK_MS:
            return
        version = self._find_version(self._deployment, origin)
        if version is not None:
            self._counted[event.recommendation_id] = None
            if len(self._counted) > IDS_KEPT:
                self._counted.popitem(last=False)
            self._scores.attribute(Series(origin.variant, version), event.type)

    def _find_version(self, deployment: Deployment, origin: Origin) -> str | None:
        """The version that made an answer; None for a candidate from before this process."""
        generation = origin.find_generation(deployment.generation)
        if origin.variant == "candidate":
            known = [candidate for since, candidate in self._candidates.items() if since <= generation]
            return known[-1] if known else None
        champions = [entry.champion for entry in deployment.history if entry.generation <= generation]
        return champions[-1] if champions else deployment.champion

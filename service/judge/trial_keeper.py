"""Keeps the trial of a candidate: feeds it paired events, and carries out its verdicts."""

import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from model.contract.deployment.changes import Change, promote, return_candidate, set_share
from model.contract.deployment.document import Deployment
from model.contract.deployment.live_sums import VERDICTS, LiveScores, TrialFigures
from service.judge.events import LoggedEvent
from service.judge.lists import NewestLists, Percentiles
from service.judge.models import JudgedModels
from service.judge.scoring import Score
from service.judge.verdicts import Verdicts
from service.recommend.assignment import assign
from service.trial.evidence import TrialMalformed
from service.trial.guardrails import Observations
from service.trial.state import Ground, Trial
from service.trial.verdict import decide

DECIDE_S: Final = 5.0
CANARY_SHARE: Final = 0.05
"""Share of users that a candidate answers once its shadow has shown nothing against it."""
REFUSED_S: Final = 300.0
"""How long the judge itself must have been unable to load a candidate before this counts against it."""
ECHOES: Final = 1_000
"""So many of the newest events tell whether clients send recommendation ids: at least half of them do."""
_LARGEST_LOG_E: Final = math.log(1e300)

Observe = Callable[[Deployment, int], Awaitable[Observations]]
"""What the workers counted of a deployment's candidate since a generation."""

_log = logging.getLogger(__name__)


class TrialKeeper:
    """The trial of the candidate that the deployment names, if it names one."""

    def __init__(
        self, root: Path, scores: LiveScores, models: JudgedModels, *, observe: Observe, dry_run: bool = False
    ) -> None:
        self._scores = scores
        self._models = models
        self._observe = observe
        self._verdicts = Verdicts(root, scores, dry_run=dry_run)
        self._trial: Trial | None = None
        self._read = False
        """Whether the trial that the scores held was taken over."""
        self._champions, self._candidates = NewestLists(), NewestLists()
        self._percentiles: Percentiles | None = None
        self._echoed: deque[bool] = deque(maxlen=ECHOES)
        self._decided_s = float("-inf")

    def follow(self, now_ms: float) -> None:
        """Take over what the deployment says now: a trial for the candidate, a new one for a new candidate."""
        deployment, at_ms = self._models.deployment, int(now_ms)
        if deployment is None:
            return
        if deployment.candidate is None:
            self._trial, self._read = None, True
            return
        if not self._read:
            self._trial, self._read = self._resume(deployment), True
        if self._trial is None or not self._trial.continues(
            deployment.candidate, deployment.champion, deployment.trial
        ):
            self._trial = Trial.begin(
                deployment.candidate, deployment.champion, deployment.trial, at_ms, generation=deployment.generation
            )
            self._champions, self._candidates = NewestLists(), NewestLists()
            self._percentiles = None
            _log.info("The trial of %s begins", deployment.candidate)
        self._trial.follow(deployment.mode, deployment.trial, at_ms)

    def note(self, event: LoggedEvent) -> None:
        """Note an event, whether or not it became a trial."""
        self._echoed.append(event.recommendation_id is not None)

    def record(self, event: LoggedEvent, champion: Score, candidate: Score, *, visitor: int) -> None:
        """Count an event that both models ranked. `visitor` is a hash of its user."""
        trial, of_champion = self._trial, self._models.champion
        if trial is None or of_champion is None:
            return
        trial.record(
            champion.ndcg, candidate.ndcg, ground=self._find_ground(event), at_ms=event.accepted_ms, visitor=visitor
        )
        if self._percentiles is None:
            self._percentiles = Percentiles(of_champion.model.vocabulary.item_ids, of_champion.model.popular)
        self._champions.add(champion, self._percentiles)
        self._candidates.add(candidate, self._percentiles)

    def keep_state(self) -> None:
        """Put the trial into the scores, which are written next."""
        if not self._read:
            return  # what the scores hold is still to be read
        trial = self._trial
        self._scores.trial = None if trial is None else trial.to_dict()
        self._scores.figures = None if trial is None else _describe(trial)

    async def decide(self, now_ms: float, lag_s: float) -> bool:
        """Look at the trial every DECIDE_S and carry out its verdict. Returns whether the deployment changed.

        Raises RedisError, OSError, TimeoutError.
        """
        trial, deployment = self._trial, self._models.deployment
        if trial is None or deployment is None or time.monotonic() - self._decided_s < DECIDE_S:
            return False
        self._decided_s = time.monotonic()
        verdict = decide(trial, await self._gather(trial, deployment, lag_s), int(now_ms))
        if verdict.action not in VERDICTS:
            self._verdicts.say(verdict.action, f"The trial of {trial.candidate}: {verdict.why}")
            return False
        changes: dict[str, Change] = {
            "canary": set_share(CANARY_SHARE),
            "promote": promote(why=verdict.why),
            "return": return_candidate(),
        }
        return self._verdicts.carry_out(
            verdict.action,
            trial.candidate,
            changes[verdict.action],
            deployment,
            why=verdict.why,
            evidence=verdict.evidence,
        )

    def _resume(self, deployment: Deployment) -> Trial | None:
        """The trial that live.json holds, if it is the one of this deployment."""
        if self._scores.trial is None:
            return None
        try:
            return Trial.from_dict(self._scores.trial, deployment.trial)
        except TrialMalformed as error:
            _log.warning("The trial begins anew: %s", error)
            return None

    def _find_ground(self, event: LoggedEvent) -> Ground:
        """Who served the user: the hash tells, as it told the workers."""
        deployment = self._models.deployment
        if event.recommendation_id is None and 2 * sum(self._echoed) >= ECHOES:
            return "organic"
        if deployment is None or deployment.mode != "canary":
            return "home"
        served = assign(event.user_id, salt=deployment.salt, share=deployment.share)
        return "away" if served == "candidate" else "home"

    async def _gather(self, trial: Trial, deployment: Deployment, lag_s: float) -> Observations:
        """What the workers counted and what the judge has seen."""
        since = deployment.generation if trial.began_generation is None else trial.began_generation
        seen = await self._observe(deployment, since)
        refused_s = self._models.refused_for_s(deployment.candidate or "")
        if refused_s > REFUSED_S:
            seen = replace(seen, refused_by=(seen.refused_by or 0) + 1)
        lists = self._champions.observe(), self._candidates.observe()
        champion, candidate = (
            replace(one, lists=of.lists, coverage=of.coverage, popularity=of.popularity, unknown=of.unknown)
            for one, of in zip((seen.champion, seen.candidate), lists, strict=True)
        )
        return replace(seen, champion=champion, candidate=candidate, share=deployment.share, lag_s=lag_s)


def _describe(trial: Trial) -> TrialFigures:
    e_values = {"promote": trial.better.log_e, "return": trial.worse.log_e}
    return TrialFigures(
        e_values={verdict: math.exp(min(_LARGEST_LOG_E, log_e)) for verdict, log_e in e_values.items()},
        difference=trial.neutral.tally.estimate_difference(trial.terms.alpha),
        pairs=trial.n,
    )

"""Keeps the candidate in use as the deployment wants it: loaded while it is in canary, withdrawn otherwise."""

import asyncio
import logging
from typing import Final

from model.contract.deployment.document import Deployment
from service.deployment.beside import Beside, Try, is_version
from service.deployment.instance import Instance
from service.deployment.refusals import Refusal
from service.deployment.swap import Swapper
from service.recommend.recommender import Recommender
from service.settings import Settings

_COMPLAINT: Final = "The candidate %s cannot be used: the champion answers its users"

_log: Final = logging.getLogger(__name__)


class CandidateWatch:
    """The candidate of one worker. A refused candidate harms nobody: the champion answers its users."""

    def __init__(
        self, settings: Settings, instance: Instance, *, recommender: Recommender, swapper: Swapper, try_bundle: Try
    ) -> None:
        self._recommender = recommender
        self._swapper = swapper
        self._place = Beside(settings, instance, try_bundle=try_bundle, load=swapper.load_candidate)

    @property
    def refusal(self) -> Refusal | None:
        """Why the candidate cannot be used, if so."""
        return self._place.refusal

    def is_champion_of(self, deployment: Deployment) -> bool:
        """Whether the loaded candidate is what the deployment's champion is now: promoted, and nothing to load."""
        candidate = self._recommender.variants.candidate
        return candidate is not None and is_version(candidate.model, deployment.champion, deployment)

    def withdraw(self, *, loop: asyncio.AbstractEventLoop) -> None:
        """Free the loaded candidate, if there is one: its place is wanted, or it is on trial no more."""
        if self._recommender.variants.candidate is not None:
            _log.info("The candidate answers no more: the champion answers its users")
            self._swapper.withdraw(loop=loop)

    def withdraw_unwanted(self, deployment: Deployment, *, loop: asyncio.AbstractEventLoop) -> None:
        """Free the loaded candidate if a deployment wants another one in canary, or none."""
        if not self._is_loaded(deployment):
            self.withdraw(loop=loop)

    def follow(self, deployment: Deployment, *, loop: asyncio.AbstractEventLoop) -> bool:
        """Load the candidate that should answer its users. Returns whether anything changed, refusals included."""
        wanted = deployment.candidate if deployment.mode == "canary" else None
        if wanted is None or self._is_loaded(deployment):
            return self._place.clear()
        return self._place.follow(wanted, deployment, complaint=_COMPLAINT, loop=loop)

    def _is_loaded(self, deployment: Deployment) -> bool:
        """Whether the loaded candidate is the one that a deployment wants in canary."""
        candidate = self._recommender.variants.candidate
        if candidate is None or deployment.candidate is None or deployment.mode != "canary":
            return False
        return is_version(candidate.model, deployment.candidate, deployment)

"""Keeps the candidate in use as the deployment wants it: loaded while it is in canary, withdrawn otherwise."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from model.contract.deployment.document import Deployment
from service.deployment.choices import open_version
from service.deployment.instance import Instance
from service.deployment.probe import Verdict
from service.deployment.refusals import Refusal, Retries, describe_folder
from service.deployment.replacement import leave_to_new_workers
from service.deployment.swap import Swapper
from service.errors import ModelRefused, StartFailed
from service.inference.model import LiveModel
from service.recommend.recommender import Recommender
from service.settings import Settings

Try = Callable[..., Verdict]

_log: Final = logging.getLogger(__name__)


class CandidateWatch:
    """The candidate of one worker. A refused candidate harms nobody: the champion answers its users."""

    def __init__(
        self, settings: Settings, instance: Instance, *, recommender: Recommender, swapper: Swapper, try_bundle: Try
    ) -> None:
        """`try_bundle` tries an open bundle in a process of its own. It raises ModelRefused."""
        self._root = settings.bundle
        self._workers = settings.workers
        self._instance = instance
        self._recommender = recommender
        self._swapper = swapper
        self._try = try_bundle
        self._retries = Retries()
        self._tried_s = float("-inf")

    @property
    def refusal(self) -> Refusal | None:
        """Why the candidate cannot be used, if so."""
        return self._retries.refusal

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
            changed = self._retries.refusal is not None
            self._retries.clear()
            return changed
        if not self._retries.is_due((deployment.generation, wanted, describe_folder(self._root / wanted))):
            return False
        try:
            return self._load(wanted, deployment, loop)
        except StartFailed as error:
            refusal = error if isinstance(error, ModelRefused) else ModelRefused("engine", str(error))
            if self._retries.refuse(wanted, refusal, generation=deployment.generation):
                _log.error(
                    "The candidate %s cannot be used: the champion answers its users",
                    wanted,
                    extra={"fields": {"code": refusal.code, "why": str(refusal)}},
                )
            return True

    def _is_loaded(self, deployment: Deployment) -> bool:
        """Whether the loaded candidate is the one that a deployment wants in canary."""
        candidate = self._recommender.variants.candidate
        if candidate is None or deployment.candidate is None or deployment.mode != "canary":
            return False
        return is_version(candidate.model, deployment.candidate, deployment)

    def _load(self, version: str, deployment: Deployment, loop: asyncio.AbstractEventLoop) -> bool:
        """Try a version and load it. Returns whether it is loaded, not left to new workers. Raises StartFailed."""
        tried_s, self._tried_s = self._tried_s, time.monotonic()
        pin = deployment.digests.get(version)
        with self._instance.book.take_turn(), open_version(self._root, version, pin=pin) as bundle:
            verdict = self._try(bundle, since_s=tried_s)
            if leave_to_new_workers(
                self._instance, verdict, version=version, generation=deployment.generation, workers=self._workers
            ):
                self._retries.delay()
                return False
            self._swapper.load_candidate(bundle, deployment, loop=loop)
        self._retries.clear()
        return True


def is_version(model: LiveModel, version: str, deployment: Deployment) -> bool:
    """Whether a loaded model is what the deployment calls by a version: by its digest where that is pinned."""
    pin = deployment.digests.get(version)
    return model.manifest.version == version if pin is None else model.digest == pin

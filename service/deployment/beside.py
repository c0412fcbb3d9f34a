"""Loads a version beside the champion: tried in a process of its own first, refused without harm, tried again later."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from model.contract.bundle import OpenBundle
from model.contract.deployment.document import Deployment
from service.deployment.choices import open_version
from service.deployment.instance import Instance
from service.deployment.probe import Verdict
from service.deployment.refusals import Refusal, Retries, describe_folder
from service.deployment.replacement import leave_to_new_workers
from service.errors import ModelRefused, StartFailed
from service.inference.model import LiveModel
from service.settings import Settings

Try = Callable[..., Verdict]
"""Tries an open bundle in a process of its own. Raises ModelRefused."""

_log: Final = logging.getLogger(__name__)


class Beside:
    """A place beside the champion of one worker, for one version at a time."""

    def __init__(self, settings: Settings, instance: Instance, *, try_bundle: Try, load: Callable[..., None]) -> None:
        """`load` is given an open bundle, the deployment and the loop. It raises ModelRefused."""
        self._root = settings.bundle
        self._workers = settings.workers
        self._instance = instance
        self._try = try_bundle
        self._load = load
        self._retries = Retries()
        self._tried_s = float("-inf")

    @property
    def refusal(self) -> Refusal | None:
        """Why the version cannot be used, if so."""
        return self._retries.refusal

    def clear(self) -> bool:
        """Nothing is to be loaded. Returns whether that is news."""
        changed = self._retries.refusal is not None
        self._retries.clear()
        return changed

    def follow(self, version: str, deployment: Deployment, *, complaint: str, loop: asyncio.AbstractEventLoop) -> bool:
        """Try and load a version, if that is due. Returns whether anything changed, refusals included.

        `complaint` is what the log says of a version that is refused.
        """
        if not self._retries.is_due((deployment.generation, version, describe_folder(self._root / version))):
            return False
        try:
            return self._enter(version, deployment, loop)
        except StartFailed as error:
            refusal = error if isinstance(error, ModelRefused) else ModelRefused("engine", str(error))
            if self._retries.refuse(version, refusal, generation=deployment.generation):
                _log.error(complaint, version, extra={"fields": {"code": refusal.code, "why": str(refusal)}})
            return True

    def _enter(self, version: str, deployment: Deployment, loop: asyncio.AbstractEventLoop) -> bool:
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
            self._load(bundle, deployment, loop=loop)
        self._retries.clear()
        return True


def is_version(model: LiveModel, version: str, deployment: Deployment) -> bool:
    """Whether a loaded model is what the deployment calls by a version: by its digest where that is pinned."""
    pin = deployment.digests.get(version)
    return model.manifest.version == version if pin is None else model.digest == pin


def list_answering(deployment: Deployment) -> list[str]:
    """The versions that answer whoever asks: the champion, and a candidate in canary."""
    in_canary = deployment.candidate if deployment.mode == "canary" else None
    return [version for version in (deployment.champion, in_canary) if version is not None]


def require_name(bundle: OpenBundle, version: str) -> None:
    """Raise ModelRefused if a bundle is another version than its folder says: requests name it, and so do answers."""
    if bundle.manifest.version != version:
        raise ModelRefused("format", f"{version} is called otherwise in its manifest: name a folder as its version")

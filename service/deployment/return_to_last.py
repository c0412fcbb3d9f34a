"""Returns a worker to the champion that it served before, if the engine of the new one fails at once.

The champion before is loaded anew: keeping each for a minute would hold two models in memory after every swap.
Until it serves, neighbours and popular items answer, as they do whenever the engine fails.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from model.contract.deployment.document import Deployment
from service.deployment.choices import open_version
from service.deployment.refusals import FAILING
from service.deployment.swap import Swapper
from service.errors import ModelRefused, StartFailed
from service.recommend.first_runs import WATCHED_S
from service.recommend.recommender import Recommender

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """What a worker served before a swap, and how it would serve it again. It holds no model."""

    deployment: Deployment
    digest: str


class ReturnToLast:
    """The way back of one worker, open for a minute after each swap of the champion."""

    def __init__(self, root: Path, *, recommender: Recommender, swapper: Swapper) -> None:
        self._root = root
        self._recommender = recommender
        self._swapper = swapper
        self._last: Place | None = None
        self._failing: Deployment | None = None

    def describe(self, deployment: Deployment, folder_name: str | None) -> Place:
        """What serves now, before a swap to a deployment. `folder_name`: the champion's folder, if it is known."""
        variants = self._recommender.variants
        before = replace(
            deployment,
            generation=variants.generation,
            champion=folder_name or variants.champion.version,
            candidate=None,
            mode="off",
            share=0.0,
        )
        return Place(before, variants.champion.model.digest)

    def open(self, place: Place, deployment: Deployment) -> None:
        """A deployment's champion was swapped in: this is where to return to if it fails."""
        self._last, self._failing = place, deployment

    @property
    def is_due(self) -> bool:
        """Whether the new champion fails at once."""
        return self._last is not None and self._recommender.variants.champion.monitor.first_runs.failing

    def act(self, *, loop: asyncio.AbstractEventLoop) -> tuple[Deployment, Deployment, ModelRefused] | None:
        """Serve the champion before. Returns its deployment, that of the new one, and why the new one is refused.

        None if the champion before cannot be used again: then the new one answers on.

        Nobody returns twice: if the one before fails, too, it is not the model.
        """
        last, failing, self._last = self._last, self._failing, None
        if last is None or failing is None:
            return None
        runs = self._recommender.variants.champion.monitor.first_runs
        why = f"{runs.failed} of its first {runs.runs} runs failed, within {WATCHED_S:.0f} s after it began to answer"
        version, began_s = last.deployment.champion, time.monotonic()
        try:
            with open_version(self._root, version, pin=last.digest) as bundle:
                self._swapper.swap(bundle, last.deployment, began_s=began_s, loop=loop)
        except StartFailed as error:
            _log.error(
                "The new champion fails, and version %s cannot be used again",
                version,
                extra={"fields": {"why": str(error)}},
            )
            return None
        return last.deployment, failing, ModelRefused(FAILING, why)

"""The versions that a worker serves beside champion and candidate, for requests that name them (--also-serve)."""

import asyncio
from functools import partial
from typing import Final

from model.contract.bundle import OpenBundle
from model.contract.deployment.document import Deployment
from service.deployment.beside import Beside, Try, is_version, list_answering, require_name
from service.deployment.instance import Instance
from service.deployment.refusals import Refusal
from service.deployment.swap import Swapper
from service.recommend.recommender import Recommender
from service.settings import Settings

_COMPLAINT: Final = "Version %s cannot be used for comparison: the service goes on without it"


class Comparisons:
    """The versions of one worker. One that is champion or candidate, too, is not loaded twice."""

    def __init__(
        self, settings: Settings, instance: Instance, *, recommender: Recommender, swapper: Swapper, try_bundle: Try
    ) -> None:
        self._recommender = recommender
        self._places = {
            version: Beside(
                settings, instance, try_bundle=try_bundle, load=partial(_load, swapper=swapper, version=version)
            )
            for version in settings.also_serve
        }

    @property
    def refusals(self) -> list[Refusal]:
        """Why versions cannot be used, those that cannot."""
        return [place.refusal for place in self._places.values() if place.refusal is not None]

    def follow(self, deployment: Deployment, *, loop: asyncio.AbstractEventLoop) -> bool:
        """Load the first version that is missing and due. Returns whether anything changed, refusals included.

        One at a time: a change of the deployment may be waiting. A version that the deployment names is loaded as
        champion or candidate, or refused as such.
        """
        answering, changed = list_answering(deployment), False
        for version, place in self._places.items():
            if version in answering or self._is_loaded(version, deployment):
                changed = place.clear() or changed
            elif place.follow(version, deployment, complaint=_COMPLAINT, loop=loop):
                return True
        return changed

    def _is_loaded(self, version: str, deployment: Deployment) -> bool:
        return any(is_version(variant.model, version, deployment) for variant in self._recommender.variants.all)


def _load(
    bundle: OpenBundle, deployment: Deployment, *, loop: asyncio.AbstractEventLoop, swapper: Swapper, version: str
) -> None:
    require_name(bundle, version)
    swapper.load_compared(bundle, deployment, loop=loop)

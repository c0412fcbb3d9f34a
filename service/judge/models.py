"""The models that are judged: champion and candidate, loaded as the deployment changes."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from model.contract.deployment.document import Deployment, DeploymentError, VariantName, read_deployment
from model.contract.deployment.live_sums import LiveScores, Series
from model.contract.manifest import BundleError
from service.errors import StartFailed
from service.inference.model import LiveModel, load_model
from service.judge.scoring import JudgedModel
from service.telemetry.logs import FaultLog

BATCH: Final = 32
"""Maximum cases in one run of a model."""
CRASHES: Final = 3
"""So many times a version may end the judge while it is loaded before it counts as refused."""
OFFLINE: Final = "ndcg@10"
"""The trainer's figure in a manifest that live scores are compared with, in lower case."""
RETRY_S: Final = (1.0, 60.0)
"""First and longest pause before a version that cannot be loaded is tried again; the pause doubles each time."""

_log = logging.getLogger(__name__)


class JudgedModels:
    """Follows the deployment of a bundle folder. A version that cannot be loaded harms no other one."""

    def __init__(self, root: Path, scores: LiveScores) -> None:
        self._root = root
        self._scores = scores
        self._loaded: dict[str, LiveModel] = {}
        self._retry: dict[str, tuple[float, float]] = {}
        """By version: when it is tried again, and the pause before that."""
        self._refused_s: dict[str, float] = {}
        """By version: since when it is refused."""
        self._fault = FaultLog(_log)
        self.deployment: Deployment | None = None
        """As it was read last."""

    @property
    def champion(self) -> JudgedModel | None:
        """The champion, if it is loaded."""
        return self._find("champion")

    @property
    def candidate(self) -> JudgedModel | None:
        """The candidate, if there is one and it is loaded."""
        return self._find("candidate")

    def follow(self, write: Callable[[], None]) -> None:
        """Read the deployment, load what it names, and let go of all else. What stood goes on if it cannot be read.

        `write` stores the scores before a version is loaded: one that ends this process is known by it.
        """
        try:
            self.deployment = read_deployment(self._root)
        except (DeploymentError, BundleError) as error:
            self._fault.report(f"The deployment cannot be followed: {error}")
        else:
            self._fault.clear()
        named = dict(self._list_named())
        self._loaded = {version: model for version, model in self._loaded.items() if version in named.values()}
        for version in named.values():
            if version not in self._loaded and self._retry.get(version, (0.0, 0.0))[0] <= time.monotonic():
                self._load(version, write)

        judged = [one for one in (self.champion, self.candidate) if one is not None]
        measured = {one.series: _read_offline(one.model) for one in judged}
        self._scores.offline = {series: ndcg for series, ndcg in measured.items() if ndcg is not None}

    def drop(self, version: str, why: str) -> None:
        """Let go of a version that fails. It is tried again after a pause."""
        self._loaded.pop(version, None)
        self._refuse(version, why)

    def refused_for_s(self, version: str) -> float:
        """For how long a version could not be loaded or run; 0 if it can."""
        return time.monotonic() - self._refused_s[version] if version in self._refused_s else 0.0

    def _list_named(self) -> Iterator[tuple[VariantName, str]]:
        if self.deployment is not None:
            yield "champion", self.deployment.champion
            if self.deployment.candidate is not None:
                yield "candidate", self.deployment.candidate

    def _find(self, variant: VariantName) -> JudgedModel | None:
        version = dict(self._list_named()).get(variant)
        model = self._loaded.get(version) if version else None
        return JudgedModel(Series(variant, version), model) if version and model else None

    def _load(self, version: str, write: Callable[[], None]) -> None:
        loading = self._scores.loading
        crashes = loading.get(version, 0)
        if crashes >= CRASHES:
            del loading[version]
            self._refuse(version, f"it ended the judge {crashes} times while it was loaded")
            return
        loading[version] = crashes + 1
        write()
        try:
            model = load_model(self._root / version, provider="cpu", threads=1, max_batch=BATCH, similar=False)
            self._require_digest(version, model)
        except StartFailed as error:
            self._refuse(version, str(error))
        else:
            self._loaded[version] = model
            self._retry.pop(version, None)
            self._scores.refused.pop(version, None)
            self._refused_s.pop(version, None)
            _log.info("Judging %s", version)
        del loading[version]

    def _require_digest(self, version: str, model: LiveModel) -> None:
        pinned = self.deployment.digests.get(version) if self.deployment else None
        if pinned not in (None, model.digest):
            raise StartFailed("the bundle is not the one that was deployed: its manifest has changed")

    def _refuse(self, version: str, why: str) -> None:
        first_s, longest_s = RETRY_S
        pause_s = min(longest_s, 2 * self._retry[version][1]) if version in self._retry else first_s
        self._retry[version] = (time.monotonic() + pause_s, pause_s)
        self._refused_s.setdefault(version, time.monotonic())
        if self._scores.refused.get(version) != why:
            _log.error("%s is not judged: %s", version, why)
        self._scores.refused[version] = why


def _read_offline(model: LiveModel) -> float | None:
    """NDCG@10 as the trainer measured it, if its manifest says so."""
    metrics = {name.lower(): value for name, value in model.manifest.metrics.items()}
    return metrics.get(OFFLINE)

"""The thread that notices another deployment, tries its champion, and has it swapped in. One in each worker.

It opens and reads deployment.json anew each time, since `open` is what network file systems revalidate, and compares
what should serve with what this worker serves: not with what changed on disk, which another worker may have seen first.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from model.contract.atomic_files import read_regular
from model.contract.bundle import CURRENT, CURRENT_MAX_BYTES, OpenBundle
from model.contract.deployment.document import Deployment, DeploymentError, find_stray_current, read_deployment
from model.contract.manifest import BundleError
from service.deployment.candidate import CandidateWatch
from service.deployment.choices import open_version
from service.deployment.comparisons import Comparisons
from service.deployment.followed import Followed
from service.deployment.instance import Instance
from service.deployment.probe import Verdict, probe
from service.deployment.refusals import Retries, describe_folder
from service.deployment.replacement import leave_to_new_workers
from service.deployment.return_to_last import ReturnToLast
from service.deployment.swap import Swapper
from service.errors import ModelRefused, StartFailed
from service.inference.refusal import refuse_bundle
from service.recommend.recommender import Recommender
from service.settings import Settings
from service.telemetry.logs import FaultLog
from service.telemetry.metrics import Metrics

JITTER: Final = 0.2
"""Share by which the time between two looks varies, so that workers do not all look at once."""
TOLD_EVERY_S: Final = 0.5
"""How often a worker that follows nothing sees whether another one was told to look."""

_log = logging.getLogger(__name__)


class Watcher:
    """Keeps one worker at what the deployment of its bundle folder says."""

    def __init__(
        self,
        settings: Settings,
        instance: Instance,
        *,
        recommender: Recommender,
        swapper: Swapper,
        metrics: Metrics,
        leaving: Callable[[], bool],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`leaving` tells whether this worker is about to stop. `on_change` is called on the loop."""
        self._root = settings.bundle
        self._settings = settings
        self._instance = instance
        self._recommender = recommender
        self._swapper = swapper
        self._metrics = metrics
        self._leaving = leaving
        self._on_change = on_change
        self._retries = Retries()
        self._candidate = CandidateWatch(
            settings, instance, recommender=recommender, swapper=swapper, try_bundle=self._try
        )
        self._comparisons = Comparisons(
            settings, instance, recommender=recommender, swapper=swapper, try_bundle=self._try
        )
        self._return = ReturnToLast(self._root, recommender=recommender, swapper=swapper)
        self._deployment: Deployment | None = None
        self._stray: str | None = None
        """The version that `current` names, though another one is the champion."""
        self._fault = FaultLog(_log)
        self._told_ns = instance.last_told_ns()
        self._tried_s = float("-inf")
        self._folder_name: str | None = None
        """The version whose bundle this worker found to be what it serves."""
        self._woken = threading.Event()
        self._random = random.Random()  # noqa: S311 - no secret; its own, since others may seed the shared one
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def followed(self) -> Followed:
        """What this worker knows of the deployment."""
        refusal = self._retries.refusal or self._candidate.refusal
        return Followed(
            follows=True, deployment=self._deployment, refusal=refusal, not_compared=tuple(self._comparisons.refusals)
        )

    def start(self) -> None:
        """Begin to watch, for the running loop. The first look is at once."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name="watcher", daemon=True).start()

    def refresh(self) -> None:
        """Look now, and have the other workers look. Safe in a signal handler."""
        self._instance.tell()
        self._woken.set()

    def stop(self) -> None:
        """Look no more. A load under way is abandoned."""
        self._stopped = True
        self._woken.set()

    def _run(self) -> None:
        acts = self._settings.follow_s > 0 or self._told_ns > 0
        while not self._stopped and not self._leaving():
            if acts or self._deployment is None or self._return.is_due:
                try:
                    self._return_if_failing()
                    self.look(acts=acts)
                except RuntimeError:
                    if self._stopped:
                        return  # the loop has ended
                    _log.exception("Following the deployment failed")
                except Exception:  # noqa: BLE001 - it must go on, whatever it met
                    _log.exception("Following the deployment failed")
            told = self._wait()
            acts = told or self._settings.follow_s > 0 or self.followed.refusal is not None

    def _wait(self) -> bool:
        """Wait until the next look is due. Returns whether somebody told this worker to look."""
        if self._settings.follow_s:
            pause_s = self._settings.follow_s * self._random.uniform(1 - JITTER, 1 + JITTER)
        else:
            pause_s = TOLD_EVERY_S
        woken = self._woken.wait(pause_s)
        if woken:  # else one that comes now would be lost
            self._woken.clear()
        told_ns = self._instance.last_told_ns()
        told, self._told_ns = told_ns != self._told_ns, told_ns
        return woken or told

    def look(self, *, acts: bool = True) -> None:
        """Compare what should serve with what serves, and act on it, unless it may only look."""
        try:
            deployment = read_deployment(self._root)
        except DeploymentError as error:
            if self._fault.report("The deployment cannot be read: nothing changes", why=str(error)):
                self._metrics.model.reloaded("malformed")
            return
        except BundleError as error:
            version = self._read_current()
            if acts and self._retries.is_due((version, describe_folder(self._root / version))):
                self._refuse(version, refuse_bundle(error), generation=0)
            return
        self._fault.clear()
        before, self._deployment = self._deployment, deployment
        if before is not None and deployment.generation < before.generation:
            _log.warning("The deployment went back from generation %d to %d", before.generation, deployment.generation)
        self._warn_of_stray(deployment)
        self._swapper.count_models()
        if self._serves(deployment):
            self._settle(deployment, changed=deployment != before)
            if acts or before is None:
                self._look_beside(deployment)
            return
        if acts and self._candidate.is_champion_of(deployment):
            place = self._return.describe(deployment, self._folder_name)
            self._swapper.promote(deployment, loop=self._require_loop())
            self._return.open(place, deployment)
            self._folder_name = deployment.champion
            self._settle(deployment, changed=True)
            return
        version = deployment.champion
        if not acts or not self._retries.is_due(self._describe(deployment)):
            return
        try:
            self._change(deployment)
        except ModelRefused as refusal:
            self._refuse(version, refusal, generation=deployment.generation)
        except StartFailed as error:
            self._refuse(version, ModelRefused("engine", str(error)), generation=deployment.generation)

    def _look_beside(self, deployment: Deployment) -> None:
        """Load what should serve beside the champion: the candidate, and versions for comparison."""
        if self._candidate.follow(deployment, loop=self._require_loop()):
            self._settle(deployment, changed=True)
        while self._comparisons.follow(deployment, loop=self._require_loop()):
            if self._settings.follow_s:  # a change of the deployment goes before the next one
                self._woken.set()
                return

    def _serves(self, deployment: Deployment) -> bool:
        champion = self._recommender.variants.champion
        pin = deployment.digests.get(deployment.champion)
        if pin is not None:
            return pin == champion.model.digest
        return deployment.champion in (champion.version, self._folder_name)

    def _change(self, deployment: Deployment) -> None:
        """Try the champion, and swap it in. Raises StartFailed."""
        tried_s, self._tried_s = self._tried_s, time.monotonic()
        version, loop, workers = deployment.champion, self._require_loop(), self._settings.workers
        pin = deployment.digests.get(version)
        with self._instance.book.take_turn(), open_version(self._root, version, pin=pin) as bundle:
            if self._stopped or self._leaving():
                return
            if bundle.digest != self._recommender.variants.champion.model.digest:
                verdict = self._try(bundle, since_s=tried_s)
                if leave_to_new_workers(
                    self._instance, verdict, version=version, generation=deployment.generation, workers=workers
                ):
                    self._retries.delay()
                    return
                self._candidate.withdraw(loop=loop)  # two models at most
                place = self._return.describe(deployment, self._folder_name)
                self._swapper.swap(bundle, deployment, began_s=self._tried_s, loop=loop)
                self._return.open(place, deployment)
            self._folder_name = version
        self._settle(deployment, changed=True)

    def _return_if_failing(self) -> None:
        """Serve the champion before again if the new one fails at once, and refuse that until anything changes."""
        if not self._return.is_due:
            return
        self._candidate.withdraw(loop=self._require_loop())  # two models at most
        returned = self._return.act(loop=self._require_loop())
        if returned is None:
            return
        deployment, failing, refusal = returned
        self._folder_name = deployment.champion
        self._metrics.model.follows(deployment.generation)
        self._refuse(failing.champion, refusal, generation=failing.generation)
        self._retries.hold(self._describe(failing))

    def _describe(self, deployment: Deployment) -> tuple[object, ...]:
        """What is tried anew as soon as it is different."""
        version = deployment.champion
        return (deployment.generation, version, describe_folder(self._root / version))

    def _try(self, bundle: OpenBundle, *, since_s: float) -> Verdict:
        """What a probe finds. Where there are others to load it, how long a load holds the GIL, too."""
        measures = self._instance.has_supervisor
        verdict = self._instance.book.find(bundle, since_s=since_s, measured=measures)
        if verdict is None:
            verdict = probe(self._settings, bundle, measures=measures)
            self._instance.book.note(bundle, verdict)
        verdict.require()
        return verdict

    def _settle(self, deployment: Deployment, *, changed: bool) -> None:
        """What should serve serves."""
        variants = self._recommender.variants
        if (variants.folder_id, variants.generation) != (deployment.folder_id, deployment.generation):
            self._candidate.withdraw_unwanted(deployment, loop=self._require_loop())
            self._swapper.adopt(deployment, loop=self._require_loop())
        self._metrics.model.follows(deployment.generation)
        self._metrics.model.refused(now=self._candidate.refusal is not None)
        changed = changed or self._retries.refusal is not None
        self._retries.clear()
        if changed:
            self._report()

    def _refuse(self, version: str, refusal: ModelRefused, *, generation: int) -> None:
        self._metrics.model.reloaded("refused")
        self._metrics.model.refused(now=True)
        if self._retries.refuse(version, refusal, generation=generation):
            serving = self._recommender.variants.champion.version
            _log.error(
                "Version %s cannot be used: %s answers on",
                version,
                serving,
                extra={"fields": {"code": refusal.code, "why": str(refusal)}},
            )
        self._report()

    def _warn_of_stray(self, deployment: Deployment) -> None:
        """Say once that somebody wrote `current`, which counts no more."""
        stray = find_stray_current(self._root, deployment)
        if stray not in (None, self._stray):
            _log.warning("`current` names %s, but deployment.json counts: %s answers", stray, deployment.champion)
        self._stray = stray

    def _read_current(self) -> str:
        """The version that `current` names, for people; it cannot be used."""
        try:
            name = read_regular(self._root / CURRENT, CURRENT_MAX_BYTES).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return CURRENT
        return name if name.isprintable() and len(name) <= 100 else CURRENT

    def _report(self) -> None:
        self._require_loop().call_soon_threadsafe(self._on_change)

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the watcher was not started")
        return self._loop

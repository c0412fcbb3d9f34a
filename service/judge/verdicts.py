"""Carries out what the judge decides: a change of the deployment with its line in the journal, counted and logged."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from model.contract.deployment.changes import Change
from model.contract.deployment.document import Deployment, DeploymentConflict, DeploymentError
from model.contract.deployment.live_sums import LiveScores
from model.contract.deployment.writer import change_deployment
from model.contract.manifest import BundleError
from service.telemetry.logs import FaultLog

_log: Final = logging.getLogger(__name__)


class Verdicts:
    """The verdicts of one part of the judge. A dry run only says what it would do."""

    def __init__(self, root: Path, scores: LiveScores, *, dry_run: bool) -> None:
        self._root = root
        self._scores = scores
        self._dry_run = dry_run
        self._said: str | None = None
        self._fault = FaultLog(_log)

    def carry_out(
        self,
        action: str,
        version: str,
        change: Change,
        deployment: Deployment,
        *,
        why: str,
        evidence: Mapping[str, Any],
    ) -> bool:
        """Change a deployment by an action of VERDICTS on a version. Returns whether another one stands then.

        So it does where somebody else was there first. What cannot be carried out is said once.
        """
        if self._dry_run:
            self.say(action, f"Would {action} {version}: {why}")
            return False
        try:
            change_deployment(
                self._root,
                change,
                action=action,
                by="judge",
                why=why,
                evidence=evidence,
                if_generation=deployment.generation,
            )
        except DeploymentConflict:
            return True  # somebody else decided meanwhile: look at it
        except (DeploymentError, BundleError, OSError) as error:
            self._fault.report(f"The verdict {action} {version} cannot be carried out: {error}")
            return False
        self._scores.verdicts[action] = self._scores.verdicts.get(action, 0) + 1
        self._fault.clear()
        _log.info("Verdict: %s %s: %s", action, version, why)
        return True

    def say(self, what: str | None, sentence: str = "") -> None:
        """Log a sentence when what it is about changes, not whenever a figure in it does. None: about nothing."""
        if what is not None and what != self._said:
            _log.info("%s", sentence)
        self._said = what

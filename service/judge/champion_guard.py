"""Takes back a new champion whose engine fails as soon as it answers.

A worker that sees it returns to the champion before by itself (service/deployment/return_to_last.py) and reports it.
But the deployment goes on naming the version that fails: workers that start serve it, and so do those that were hardly
asked. The judge rolls the deployment back, which holds the judge until somebody resumes it: so it happens once.
"""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from model.contract.deployment.changes import roll_back
from model.contract.deployment.document import Deployment
from model.contract.deployment.live_sums import LiveScores
from service.judge.models import JudgedModels
from service.judge.verdicts import Verdicts

LOOK_S: Final = 5.0

CountFailing = Callable[[Deployment], Awaitable[int]]
"""How many workers went back from a deployment's champion."""


class ChampionGuard:
    """Looks every LOOK_S seconds whether workers went back from the champion that the deployment names."""

    def __init__(
        self,
        root: Path,
        scores: LiveScores,
        models: JudgedModels,
        *,
        count_failing: CountFailing,
        dry_run: bool = False,
    ) -> None:
        self._models = models
        self._count_failing = count_failing
        self._verdicts = Verdicts(root, scores, dry_run=dry_run)
        self._looked_s = float("-inf")

    async def check(self) -> bool:
        """Roll back if it is time to look and a worker went back. Returns whether the deployment changed.

        Raises RedisError, OSError, TimeoutError.
        """
        deployment = self._models.deployment
        if deployment is None or time.monotonic() - self._looked_s < LOOK_S:
            return False
        self._looked_s = time.monotonic()
        failing = await self._count_failing(deployment)
        if not failing:
            self._verdicts.say(None)
            return False
        champion = deployment.champion
        workers = f"{failing} worker{'' if failing == 1 else 's'}"
        why = f"guardrail: its engine failed as soon as it answered, and {workers} went back to the champion before"
        if not deployment.trial.auto:
            self._verdicts.say("held", f"The judge is held and does not roll back {champion}: {why}")
            return False
        return self._verdicts.carry_out(
            "rollback", champion, roll_back(why=why), deployment, why=why, evidence={"failing_workers": failing}
        )

"""Where the judge runs: beside an embedded store, as a process of its own that yields to all others.

What reads bundles is imported where it is used: it imports NumPy, which the archiver, that imports this, does without.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from typing import Final

from service.errors import StartFailed
from service.settings import JUDGE_SETTINGS, Settings
from service.system.child_process import ChildProcess

JUDGE = "judge"
"""The word that makes nextitem-serve a judge."""

SILENT_S: Final = 60.0
"""Scores that are older fail `judge --check`: they are written every few seconds."""

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def run_judge(url: str, settings: Settings) -> Iterator[None]:
    """Run the judge of a store in a child process while the context lasts. It never outlives this process.

    Runs none, and says why, where it could not work.
    """
    if settings.judge == "off":
        yield
        return
    if reason := find_obstacle(settings):
        _log.info("Live events are not scored: %s", reason)
        yield
        return
    given = settings.model_copy(update={"redis_url": url, "bundle": settings.bundle.absolute()})
    child = ChildProcess("Judge", JUDGE, given.make_environment(JUDGE_SETTINGS))
    child.start()
    try:
        yield
    finally:
        child.stop()


def check_judge(settings: Settings) -> int:
    """`nextitem-serve judge --check`: 0 if the judge wrote its scores recently. Raises StartFailed."""
    from model.contract.deployment.live_scores import LiveScoresMalformed, read_live_scores  # noqa: PLC0415 - see above

    try:
        scores = read_live_scores(settings.bundle)
    except LiveScoresMalformed as error:
        raise StartFailed(str(error)) from error
    if scores is None:
        raise StartFailed(f"no judge has written scores to {settings.bundle}")
    age_s = time.time() - scores.at_s
    if age_s > SILENT_S:
        raise StartFailed(f"the judge wrote its scores {age_s:.0f} s ago")
    return 0


def find_obstacle(settings: Settings) -> str | None:
    """Why there can be no judge for the bundle that the settings name; None if there can be."""
    from model.contract.deployment.document import is_followed  # noqa: PLC0415 - see above

    if not is_followed(settings.bundle):
        return f"{settings.bundle} is a single bundle, and no folder whose champion may change"
    if not os.access(settings.bundle, os.W_OK | os.X_OK):
        return f"the judge may not write to {settings.bundle}"
    return None

"""Where the judge runs: beside an embedded store, as a process of its own that yields to all others."""

import contextlib
import logging
import os
from collections.abc import Iterator

from model.contract.deployment.document import is_followed
from service.settings import JUDGE_SETTINGS, Settings
from service.system.child_process import ChildProcess

JUDGE = "judge"
"""The word that makes nextitem-serve a judge."""

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


def find_obstacle(settings: Settings) -> str | None:
    """Why there can be no judge for the bundle that the settings name; None if there can be."""
    if not is_followed(settings.bundle):
        return f"{settings.bundle} is a single bundle, and no folder whose champion may change"
    if not os.access(settings.bundle, os.W_OK | os.X_OK):
        return f"the judge may not write to {settings.bundle}"
    return None

"""Leaves a load that would hold up answers to new workers: the supervisor replaces all workers, one by one.

A new worker loads champion and candidate before it takes requests (startup.py), so that nobody waits for it.
"""

import logging
import os
import signal
from typing import Final

from service.deployment.instance import Instance
from service.deployment.probe import Verdict

MAX_HOLD_S: Final = 0.05
"""If loading a model holds the GIL for longer, several workers are replaced instead."""
ASK_EVERY_S: Final = 60.0
"""How long the supervisor has for each worker before it is asked again."""

_log: Final = logging.getLogger(__name__)


def holds_up_answers(verdict: Verdict) -> bool:
    """Whether a load in a worker that answers would hold the GIL for too long."""
    return verdict.held_s is not None and verdict.held_s > MAX_HOLD_S


def leave_to_new_workers(instance: Instance, verdict: Verdict, *, version: str, generation: int, workers: int) -> bool:
    """Whether a version is not to be loaded in this worker, since new workers come that have loaded it.

    One worker asks the supervisor for all. A worker that is alone has nobody to ask, and loads in place.
    """
    if not instance.has_supervisor or not holds_up_answers(verdict):
        return False
    if instance.book.claim(f"replace-{generation}-{version}", every_s=ASK_EVERY_S * workers):
        _log.info(
            "Workers are replaced one by one: loading %s holds the interpreter %.0f ms",
            version,
            1000 * (verdict.held_s or 0.0),
            extra={"fields": {"generation": generation, "limit_ms": round(1000 * MAX_HOLD_S)}},
        )
        os.kill(os.getppid(), signal.SIGHUP)
    return True

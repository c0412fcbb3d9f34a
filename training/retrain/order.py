"""What a retraining is asked to do, and what came of it."""

from dataclasses import dataclass
from pathlib import Path

from model.contract.deployment.document import Deployment

NOT_GOOD_ENOUGH = 3
"""Exit status of a retraining whose model is not published."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What was asked for."""

    data: Path
    bundle: Path
    runs: Path
    base: Path | None = None
    items: Path | None = None
    recipe: str | None = None
    settings: tuple[str, ...] = ()
    start: str = "warm"
    budget: float | None = None
    if_needed: bool = False
    dry_run: bool = False
    replace: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of it: the exit status, a sentence, and the version on trial, if there is one."""

    code: int
    said: str
    version: str | None = None


class Stopped(Exception):
    """Somebody asked to stop."""


def say_busy(deployment: Deployment) -> str:
    """Why a candidate is left alone that is on trial already."""
    return f"{deployment.candidate} is on trial: wait for its verdict, or replace it with --replace"

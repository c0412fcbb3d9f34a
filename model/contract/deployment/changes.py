"""The changes of a deployment, as pure functions from one document to the next. writer.py stores them."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from model.contract.bundle import CURRENT
from model.contract.deployment.document import HISTORY_LENGTH, Deployment, DeploymentRefused, Mode, PastChampion

Change = Callable[[Deployment], Deployment]
"""From the deployment that stands to the one that is wanted; the writer sets generation, time and author.

Raises DeploymentRefused.
"""


def use(version: str, *, why: str = "") -> Change:
    """Make a version the champion. A candidate stays on trial unless it is this version."""

    def change(now: Deployment) -> Deployment:
        if version == now.champion:
            raise DeploymentRefused(f"{version} is the champion already")
        then = _withdraw(now) if version == now.candidate else now
        return _crown(then, version, why)

    return change


def set_candidate(
    version: str, *, mode: Mode = "shadow", share: float = 0.0, terms: Mapping[str, Any] | None = None
) -> Change:
    """Put a version on trial, in place of any candidate. It gets a new salt: other users than the last one's try it.

    `terms` are fields of TrialTerms to change; the others stay as they are.
    """

    def change(now: Deployment) -> Deployment:
        if version == now.champion:
            raise DeploymentRefused(f"{version} is the champion: it cannot be its own candidate")
        if mode == "off":
            raise DeploymentRefused("a candidate has the mode shadow or canary; `return` takes it off trial")
        if mode == "canary" and not 0 < share <= 1:
            raise DeploymentRefused("canary needs a share of users above 0, and at most 1")
        salt = now.salt if version == now.candidate else secrets.token_hex(4)
        trial = replace(now.trial, **(terms or {}))
        share_now = share if mode == "canary" else 0.0
        return replace(now, candidate=version, mode=mode, share=share_now, salt=salt, trial=trial)

    return change


def set_share(share: float) -> Change:
    """Change the share of users that the candidate answers, 0 to 1; 0 takes it back to shadow."""

    def change(now: Deployment) -> Deployment:
        if now.candidate is None:
            raise DeploymentRefused("there is no candidate whose share could change")
        if not 0 <= share <= 1:
            raise DeploymentRefused("a share is a number from 0 to 1")
        return replace(now, mode="canary" if share else "shadow", share=share)

    return change


def promote(*, why: str = "") -> Change:
    """Make the candidate the champion."""

    def change(now: Deployment) -> Deployment:
        if now.candidate is None:
            raise DeploymentRefused("there is no candidate to promote")
        return _crown(_withdraw(now), now.candidate, why)

    return change


def return_candidate() -> Change:
    """Take the candidate off trial. The champion stays."""

    def change(now: Deployment) -> Deployment:
        if now.candidate is None:
            raise DeploymentRefused("there is no candidate to return")
        return _withdraw(now)

    return change


def roll_back(*, why: str = "") -> Change:
    """Go back to the champion before this one. Twice goes further back. Ends any trial, and the judge's verdicts."""

    def change(now: Deployment) -> Deployment:
        earlier = [entry.champion for entry in now.history if not entry.rolled_back and entry.champion != now.champion]
        if not earlier:
            raise DeploymentRefused("no earlier champion is known: name a version with `use`")
        left = tuple(
            replace(entry, rolled_back=True) if entry.champion == now.champion else entry for entry in now.history
        )
        then = _crown(replace(_withdraw(now), history=left), earlier[-1], why)
        return replace(then, trial=replace(now.trial, auto=False))

    return change


def set_terms(terms: Mapping[str, Any]) -> Change:
    """Change terms of the trial: fields of TrialTerms by name. They hold for this candidate and for later ones."""

    def change(now: Deployment) -> Deployment:
        trial = replace(now.trial, **terms)
        if trial == now.trial:
            raise DeploymentRefused("the terms of the trial are so already")
        return replace(now, trial=trial)

    return change


def hold() -> Change:
    """Take verdicts from the judge: nothing is promoted or returned until `resume`."""
    return lambda now: _set_auto(now, auto=False)


def resume() -> Change:
    """Let the judge decide again."""
    return lambda now: _set_auto(now, auto=True)


def _set_auto(now: Deployment, *, auto: bool) -> Deployment:
    if now.trial.auto == auto:
        raise DeploymentRefused("the judge decides already" if auto else "the judge is held already")
    return replace(now, trial=replace(now.trial, auto=auto))


def _crown(now: Deployment, version: str, why: str) -> Deployment:
    """The history's last entry is the new champion's; its generation, time and author are the writer's to fill in."""
    history = now.history
    if not history and now.champion:  # it answered before anybody wrote down who does
        why_first = "it answered before the first change"
        by = now.by or CURRENT
        history = (PastChampion(generation=now.generation, champion=now.champion, at=now.at, by=by, why=why_first),)
    entry = PastChampion(generation=now.generation + 1, champion=version, at="", by="", why=why)
    return replace(now, champion=version, previous=now.champion or None, history=(*history, entry)[-HISTORY_LENGTH:])


def _withdraw(now: Deployment) -> Deployment:
    return replace(now, candidate=None, mode="off", share=0.0, salt="")

"""The changes of a deployment, as pure functions from one document to the next. writer.py stores them."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
            raise DeploymentRefused("this version is the champion already")
        then = _withdraw(now) if version == now.candidate else now
        return _crown(then, version, why)

    return change


def set_candidate(version: str, *, mode: Mode = "shadow", share: float = 0.0) -> Change:
    """Put a version on trial, in place of any candidate. It gets a new salt: other users than the last one's try it."""

    def change(now: Deployment) -> Deployment:
        if version == now.champion:
            raise DeploymentRefused("this version is the champion: it cannot be its own candidate")
        if mode == "off":
            raise DeploymentRefused("a candidate has the mode shadow or canary; `return` takes it off trial")
        if mode == "canary" and not 0 < share <= 1:
            raise DeploymentRefused("canary needs a share of users above 0, and at most 1")
        salt = now.salt if version == now.candidate else secrets.token_hex(4)
        return replace(now, candidate=version, mode=mode, share=share if mode == "canary" else 0.0, salt=salt)

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


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What somebody asks for by an action's name: a command line, or a request."""

    action: str
    """One of ACTIONS."""
    version: str | None = None
    """For use and candidate."""
    mode: Mode | None = None
    """For candidate; by default canary where there is a share, else shadow."""
    share: float | None = None
    """For share, and for a candidate in canary."""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """For terms."""
    why: str = ""

    def to_change(self) -> Change:
        """The change that is asked for. Raises ValueError, which says what is missing or does not belong to it."""
        self._check()
        return _MAKERS[self.action](self)

    def _check(self) -> None:
        for part, actions in _PARTS.items():
            given = getattr(self, part)
            if (given is None or given == {}) and self.action in actions and (part, self.action) not in _OPTIONAL:
                raise ValueError(f"{self.action} needs {part}")
            if given is not None and given != {} and self.action not in actions:
                raise ValueError(f"{self.action} takes no {part}")
        if self.action == "candidate" and (self.chosen_mode == "canary") != bool(self.share):
            raise ValueError("canary needs a share above 0, and shadow takes none")

    @property
    def chosen_mode(self) -> Mode:
        """The mode that is asked for, or that a share stands for."""
        return self.mode or ("canary" if self.share else "shadow")


_MAKERS: Mapping[str, Callable[[Wish], Change]] = {
    "use": lambda wish: use(str(wish.version), why=wish.why),
    "candidate": lambda wish: set_candidate(str(wish.version), mode=wish.chosen_mode, share=wish.share or 0.0),
    "share": lambda wish: set_share(wish.share or 0.0),
    "terms": lambda wish: set_terms(wish.terms),
    "promote": lambda wish: promote(why=wish.why),
    "return": lambda _wish: return_candidate(),
    "rollback": lambda wish: roll_back(why=wish.why),
    "hold": lambda _wish: hold(),
    "resume": lambda _wish: resume(),
}
ACTIONS = frozenset(_MAKERS)
_PARTS = {"version": ("use", "candidate"), "mode": ("candidate",), "share": ("candidate", "share"), "terms": ("terms",)}
_OPTIONAL = {("mode", "candidate"), ("share", "candidate")}


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

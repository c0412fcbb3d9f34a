"""deployment.json: which version of a bundle folder answers, which one is on trial, and how it came to that.

```
bundles/deployment.json   this document, replaced whole under a lock (writer.py)
bundles/journal.jsonl     every change, one line each (journal.py)
bundles/current           the champion's version, for readers that know no deployment.json
```
A generation number orders the documents. Times are for people only. A folder without the file has generation 0, and
`current` names its champion.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args

from model.contract.atomic_files import read_regular
from model.contract.bundle import CURRENT, CURRENT_MAX_BYTES, MANIFEST, MANIFEST_MAX_BYTES, locate_bundle
from model.contract.deployment.fields import (
    is_digest_table,
    is_flag,
    is_index,
    is_nonnegative,
    is_optional_version,
    is_positive,
    is_share,
    is_short_text,
    is_text,
    is_version,
    parse_strictly,
)
from model.contract.manifest import is_count, is_plain_name

DEPLOYMENT = "deployment.json"
DEPLOYMENT_MAX_BYTES = 64 * 1024
FORMAT = 1
HISTORY_LENGTH = 20
WHY_MAX = 200
BY_MAX = 80
"""In characters. What is longer is cut, so that the document stays far below its limit."""

Mode = Literal["off", "shadow", "canary"]
"""What the candidate does. shadow: it is only scored on live events. canary: it also answers its share of users."""
MODES: tuple[Mode, ...] = get_args(Mode)
VariantName = Literal["champion", "candidate"]
"""Which of the two a model is. champion: it answers. candidate: it is on trial."""
VARIANTS: tuple[VariantName, ...] = get_args(VariantName)
TrialPath = Literal["shadow", "canary"]


class DeploymentError(Exception):
    """A deployment cannot be read or changed. The message says why and what to do.

    DeploymentError
    ├── DeploymentMalformed  deployment.json or the journal is not what this version reads
    ├── DeploymentConflict   somebody else changed the deployment meanwhile
    └── DeploymentRefused    the change is not possible, or not wise
    """


class DeploymentMalformed(DeploymentError):
    """deployment.json or the journal is not what this version reads."""


class DeploymentConflict(DeploymentError):
    """The deployment is no longer of the generation that the change was meant for."""


class DeploymentRefused(DeploymentError):
    """The change is not possible, or not wise. The message names no version: it may go to whoever asked."""


@dataclass(frozen=True, kw_only=True)
class TrialTerms:
    """When a candidate is promoted or returned without anybody's word."""

    auto: bool = True
    """Whether the judge decides. Off after `hold` and after a rollback, until `resume`."""
    path: TrialPath = "canary"
    """canary: shadow, then canary, then promotion. shadow: promotion straight from shadow, where traffic is thin."""
    alpha: float = 0.05
    """Chance of promoting a candidate that is not better, however often one looks."""
    margin: float = 0.0
    """Share of the champion's NDCG@10 that a candidate may lose and still be promoted. 0: it must be better."""
    return_margin: float = 0.1
    """Share of the champion's NDCG@10 that a candidate must be shown to lose to be returned."""
    min_trials: int = 500
    """Paired events before the first verdict."""
    min_answers: int = 1000
    """Answers by the candidate before it is promoted from canary."""
    min_hours: float = 24.0
    """Hours in canary before promotion: a day shows a whole cycle."""
    max_days: float = 14.0
    """Days after which an undecided candidate is returned."""
    others: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields that this version does not know. They are kept."""


@dataclass(frozen=True, kw_only=True)
class PastChampion:
    """A version that answered before. `generation` is the one that made it champion."""

    generation: int
    champion: str
    at: str
    by: str
    why: str
    rolled_back: bool = False
    """Whether a rollback left it; a rollback never returns to such a version."""
    others: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields that this version does not know. They are kept."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Who answers. `champion` answers everybody but the candidate's share of users."""

    generation: int
    champion: str
    candidate: str | None = None
    mode: Mode = "off"
    share: float = 0.0
    """Share of users that the candidate answers, 0 to 1. Counts in canary only."""
    salt: str = ""
    """Hexadecimal, new for each candidate, so that not the same users try everything."""
    id_key: str = ""
    """Signs recommendation ids, so that who reads this folder can tell what an id says, and no client can make one."""
    folder_id: str = ""
    """Tells this folder and its copies from others whose services share a store. Random, and kept by every change."""
    previous: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    """Version -> sha256 of its manifest.json, of those named and of past champions.

    A folder that was replaced under its name is refused.
    """
    trial: TrialTerms = TrialTerms()
    history: tuple[PastChampion, ...] = ()
    """Oldest first, the champion's own entry last."""
    at: str = ""
    by: str = ""
    others: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields that this version does not know. They are kept."""

    @property
    def named(self) -> tuple[str, ...]:
        """The versions that must be kept: champion, candidate, previous."""
        return tuple(version for version in (self.champion, self.candidate, self.previous) if version)

    def to_bytes(self) -> bytes:
        """The text of deployment.json. Raises DeploymentMalformed if a field holds what JSON cannot."""
        document = {
            **_to_object(self, _RULES),
            "format": FORMAT,
            "digests": dict(self.digests),
            "trial": _to_object(self.trial, _TRIAL_RULES),
            "history": [_to_object(entry, _PAST_RULES) for entry in self.history[-HISTORY_LENGTH:]],
        }
        try:
            return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise DeploymentMalformed(f"{DEPLOYMENT} cannot hold these fields as JSON") from error

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read deployment.json. Raises DeploymentMalformed naming the first field that is wrong."""
        try:
            document: Any = parse_strictly(content)
        except (ValueError, RecursionError) as error:
            raise DeploymentMalformed(f"{DEPLOYMENT} is not JSON") from error
        if not isinstance(document, dict):
            raise DeploymentMalformed(f"{DEPLOYMENT} is not an object")
        if not is_count(document.get("format")) or document["format"] != FORMAT:
            raise DeploymentMalformed(
                f"{DEPLOYMENT} has format {document.get('format')!r}: this version reads format {FORMAT}"
            )
        trial, history = document.get("trial", {}), document.get("history", [])
        if not isinstance(trial, dict) or not isinstance(history, list):
            raise DeploymentMalformed(f"{DEPLOYMENT}: 'trial' must be an object and 'history' a list")
        if not all(isinstance(entry, dict) for entry in history):
            raise DeploymentMalformed(f"{DEPLOYMENT}: 'history' must hold objects")
        rest = {name: value for name, value in document.items() if name not in {"format", "trial", "history"}}
        deployment = cls(
            **_read_fields({"id_key": "", "folder_id": "", **rest}, _RULES, DEPLOYMENT),
            trial=TrialTerms(**_read_fields({**_TERMS, **trial}, _TRIAL_RULES, f"{DEPLOYMENT}: trial")),
            history=tuple(
                PastChampion(**_read_fields({"rolled_back": False, **entry}, _PAST_RULES, f"{DEPLOYMENT}: history"))
                for entry in history
            ),
        )
        deployment.check()
        return deployment

    def check(self) -> None:
        """Raise DeploymentMalformed if the fields contradict each other."""
        if self.candidate == self.champion:
            raise DeploymentMalformed(f"{DEPLOYMENT}: candidate and champion are the same version")
        if (self.candidate is None) != (self.mode == "off"):
            raise DeploymentMalformed(f"{DEPLOYMENT}: a candidate has the mode shadow or canary, and only a candidate")
        if self.mode == "canary" and not self.salt:
            raise DeploymentMalformed(f"{DEPLOYMENT}: a candidate in canary needs a salt")


def read_deployment(root: Path) -> Deployment:
    """The deployment of a bundle folder. Without deployment.json: generation 0, the champion is what `current` names.

    Raises DeploymentMalformed, and BundleError where there is no champion at all.
    """
    try:
        content = read_regular(root / DEPLOYMENT, DEPLOYMENT_MAX_BYTES + 1)
    except FileNotFoundError:
        champion = locate_bundle(root)
        return Deployment(generation=0, champion=champion.name, **_derive_ids(champion))
    except OSError as error:
        raise DeploymentMalformed(f"{root / DEPLOYMENT} cannot be read ({error.strerror})") from error
    if len(content) > DEPLOYMENT_MAX_BYTES:
        raise DeploymentMalformed(f"{root / DEPLOYMENT} is larger than {DEPLOYMENT_MAX_BYTES} bytes")
    return Deployment.from_bytes(content)


def is_followed(path: Path) -> bool:
    """Whether `path` is a bundle folder, whose deployment may change, and not a single bundle."""
    return not (path / MANIFEST).is_file() and ((path / DEPLOYMENT).exists() or (path / CURRENT).exists())


def find_stray_current(root: Path, deployment: Deployment) -> str | None:
    """The version that `current` names, where deployment.json names another champion, which answers. Else None."""
    if deployment.generation == 0:
        return None
    try:
        version = read_regular(root / CURRENT, CURRENT_MAX_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return None
    return version if version != deployment.champion and is_plain_name(version) else None


def _derive_ids(champion: Path) -> dict[str, Any]:
    """`id_key` and `folder_id` of a folder without deployment.json, of what no client knows: its manifest.

    The first change keeps the key, and gives the folder an id of its own: others may hold the same version.
    """
    try:
        manifest = read_regular(champion / MANIFEST, MANIFEST_MAX_BYTES)
    except OSError:
        return {}  # whoever loads it will say so
    names = ("id_key", "folder_id")
    return {name: hashlib.blake2b(manifest, digest_size=16, person=name.encode()).hexdigest() for name in names}


def _to_object(source: Deployment | TrialTerms | PastChampion, rules: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    return {**source.others, **{name: getattr(source, name) for name in rules}}


def _read_fields(given: Mapping[str, Any], rules: Mapping[str, tuple[Any, str]], where: str) -> dict[str, Any]:
    """The fields that have rules, checked, and the others. Raises DeploymentMalformed."""
    for name, (holds, wanted) in rules.items():
        if name not in given:
            raise DeploymentMalformed(f"{where}: {name!r} is missing")
        if not holds(given[name]):
            raise DeploymentMalformed(f"{where}: {name!r} must be {wanted}")
    others = {name: value for name, value in given.items() if name not in rules}
    return {**{name: given[name] for name in rules}, "others": others}


_TEXT = (is_text, "a string")
_RULES: Mapping[str, tuple[Any, str]] = {
    "generation": (is_index, "a whole number of at least 0"),
    "champion": (is_version, "the name of a version"),
    "candidate": (is_optional_version, "the name of a version or null"),
    "mode": (lambda value: value in MODES, f"one of {', '.join(MODES)}"),
    "share": (is_share, "a number from 0 to 1"),
    "salt": _TEXT,
    "id_key": (is_short_text, "up to 64 ASCII characters"),
    "folder_id": (is_short_text, "up to 64 ASCII characters"),
    "previous": (is_optional_version, "the name of a version or null"),
    "digests": (is_digest_table, "an object of sha256 by version"),
    "at": _TEXT,
    "by": _TEXT,
}
_TRIAL_RULES: Mapping[str, tuple[Any, str]] = {
    "auto": (is_flag, "true or false"),
    "path": (lambda value: value in get_args(TrialPath), "shadow or canary"),
    "alpha": (lambda value: is_positive(value) and value < 1, "a number between 0 and 1"),
    "margin": (is_share, "a number from 0 to 1"),
    "return_margin": (is_share, "a number from 0 to 1"),
    "min_trials": (is_index, "a whole number of at least 0"),
    "min_answers": (is_index, "a whole number of at least 0"),
    "min_hours": (is_nonnegative, "a number of at least 0"),
    "max_days": (is_positive, "a positive number"),
}
_PAST_RULES: Mapping[str, tuple[Any, str]] = {
    "generation": (is_index, "a whole number of at least 0"),
    "champion": (is_version, "the name of a version"),
    "at": _TEXT,
    "by": _TEXT,
    "why": _TEXT,
    "rolled_back": (is_flag, "true or false"),
}
_TERMS: Mapping[str, Any] = {name: getattr(TrialTerms(), name) for name in _TRIAL_RULES}

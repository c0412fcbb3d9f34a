"""Stores a change of a deployment: journal first, deployment.json second, `current` last, all under one lock.

A crash after the journal leaves a line of a generation that never was. The next writer notes it as `undone`, removes
the files that a crash left aside, and gives its own change the generation after it: no generation is given twice.
"""

import contextlib
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from model.contract.atomic_files import hold_lock, read_regular, write_whole
from model.contract.bundle import CURRENT, CURRENT_MAX_BYTES, open_bundle, point_current
from model.contract.deployment import journal
from model.contract.deployment.changes import Change
from model.contract.deployment.checks import require_known
from model.contract.deployment.document import (
    BY_MAX,
    DEPLOYMENT,
    DEPLOYMENT_MAX_BYTES,
    WHY_MAX,
    Deployment,
    DeploymentConflict,
    DeploymentMalformed,
    DeploymentRefused,
    read_deployment,
)
from model.contract.deployment.fields import clean
from model.contract.deployment.versions import KEEP, choose_pruned, list_versions, remove_leftovers, remove_version
from model.contract.manifest import BundleError

LOCK = ".deployment.lock"
LOCK_PATIENCE_S = 10.0
_NOBODY = Deployment(generation=0, champion="")
"""Stands where neither deployment.json nor `current` names a champion, until the first `use`."""


def change_deployment(
    root: Path,
    change: Change,
    *,
    action: str,
    by: str,
    why: str = "",
    evidence: Mapping[str, Any] | None = None,
    if_generation: int | None = None,
    force: bool = False,
    dry_run: bool = False,
) -> Deployment:
    """Apply a change and return the deployment that stands then. With `dry_run` nothing is written.

    `action` and `why` go to the journal; `by` is cli:USER, key:ID, judge, retrain or publish. With `force` a version
    may be named though it knows little of the champion's catalogue (checks.py), and the journal says so.

    Raises DeploymentConflict unless the generation is `if_generation`, DeploymentRefused, DeploymentMalformed,
    BundleError if a version that the change names cannot be used, or if there is no champion and the change names
    none, and OSError if the folder cannot be written.
    """
    by, why = clean(by, limit=BY_MAX), clean(why, limit=WHY_MAX)
    with contextlib.nullcontext() if dry_run else hold_deployment(root):
        now, missing = _read(root)
        if if_generation not in (None, now.generation):
            raise DeploymentConflict(
                f"the deployment is of generation {now.generation}, not {if_generation}: look at it and try again"
            )
        wanted = change(now)
        if missing is not None and not wanted.champion:
            raise missing
        last = _last_entry(root)
        generation = max(now.generation, last["generation"] if last else 0) + 1
        at = datetime.now(UTC).isoformat(timespec="seconds")
        after = _stamp(now, wanted, generation=generation, at=at, by=by, why=why)
        after = replace(after, digests=_pin(root, now, after))
        content = _write_down(after)
        findings = _check_known(root, now, after, force=force)
        if dry_run:
            return after
        stamp: dict[str, Any] = {"at": at, "by": by}
        if last is not None and last.get("action") != journal.UNDONE and last["generation"] > now.generation:
            journal.append(root, {**stamp, **_take_back(last, now)})
        old, new = journal.describe(now, after)
        entry = {**stamp, "generation": generation, "action": action, "from": old, "to": new, "why": why, **findings}
        journal.append(root, entry if evidence is None else {**entry, "evidence": dict(evidence)})
        _remove_asides(root)
        write_whole(root / DEPLOYMENT, content)
        if _read_current(root) != after.champion:
            point_current(root, after.champion)
        return after


def prune(
    root: Path,
    *,
    keep: int = KEEP,
    older_than_s: float = 0.0,
    in_use: Collection[str] = (),
    dry_run: bool = False,
) -> list[str]:
    """Remove the versions that nobody needs any more (versions.choose_pruned) and return them.

    Raises DeploymentConflict, DeploymentMalformed, BundleError where there is no champion, and OSError.
    """
    with contextlib.nullcontext() if dry_run else hold_deployment(root):
        chosen = choose_pruned(
            list_versions(root), read_deployment(root), keep=keep, older_than_s=older_than_s, in_use=in_use
        )
        if not dry_run:
            for version in chosen:
                remove_version(root, version)
            remove_leftovers(root)
        return chosen


@contextlib.contextmanager
def hold_deployment(root: Path) -> Iterator[None]:
    """Hold the folder's lock: nobody else changes its deployment meanwhile.

    Raises DeploymentConflict if somebody else holds it for LOCK_PATIENCE_S, and OSError.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold_lock(root / LOCK, patience_s=LOCK_PATIENCE_S))
        except BlockingIOError as error:
            raise DeploymentConflict("somebody else is changing this folder's deployment") from error
        yield


def _read(root: Path) -> tuple[Deployment, BundleError | None]:
    """The deployment that stands; without any, _NOBODY and what is missing."""
    try:
        return read_deployment(root), None
    except BundleError as error:
        return _NOBODY, error


def _last_entry(root: Path) -> journal.Entry | None:
    """The journal's last entry. A damaged one stops no change, rollback least of all: `journal --verify` tells."""
    try:
        return journal.last_entry(root)
    except DeploymentMalformed:
        return None


def _stamp(now: Deployment, wanted: Deployment, *, generation: int, at: str, by: str, why: str) -> Deployment:
    """The wanted deployment with generation, time and author, in the history's new entry, too."""
    history = wanted.history
    if wanted.champion != now.champion:
        entry = history[-1]
        why = clean(entry.why, limit=WHY_MAX) or why
        history = (*history[:-1], replace(entry, generation=generation, at=at, by=by, why=why))
    id_key = wanted.id_key or secrets.token_hex(16)
    folder_id = (wanted.folder_id if now.generation else "") or secrets.token_hex(8)
    return replace(wanted, generation=generation, at=at, by=by, history=history, id_key=id_key, folder_id=folder_id)


def _write_down(after: Deployment) -> bytes:
    """The text of deployment.json, which every reader will take. Raises DeploymentMalformed."""
    content = after.to_bytes()
    if len(content) > DEPLOYMENT_MAX_BYTES:
        raise DeploymentMalformed(f"{DEPLOYMENT} would be larger than {DEPLOYMENT_MAX_BYTES} bytes")
    Deployment.from_bytes(content)
    return content


def _pin(root: Path, now: Deployment, after: Deployment) -> dict[str, str]:
    """The digests of the versions that are named or were champions. Those in a new role must be bundles."""
    remembered = dict.fromkeys([*after.named, *(entry.champion for entry in after.history)])
    digests = {version: now.digests[version] for version in remembered if version in now.digests}
    for version in remembered:
        takes_role = (version == after.champion != now.champion) or (version == after.candidate != now.candidate)
        if version in digests and not takes_role:
            continue
        try:
            with open_bundle(root / version) as bundle:
                digest = bundle.digest
        except BundleError:
            if takes_role:
                raise
            continue  # it only answered once
        if digests.setdefault(version, digest) != digest:
            raise DeploymentRefused(
                "a version is not the bundle that it was when it was named before: its manifest has changed"
            )
    return digests


def _check_known(root: Path, now: Deployment, after: Deployment, *, force: bool) -> dict[str, Any]:
    """Check the catalogue of a version that is named for the first time; what the journal says of that."""
    if not now.champion:
        return {}
    seen = {*now.named, *(entry.champion for entry in now.history)}
    findings: dict[str, Any] = {"forced": True} if force else {}
    for version in (after.champion, after.candidate):
        if version is not None and version not in seen:
            known = require_known(root, now.champion, version, force=force)
            findings |= {} if known is None else {"known": round(known, 4)}
    return findings


def _take_back(last: journal.Entry, now: Deployment) -> dict[str, Any]:
    why = f"generation {now.generation} stands: the writer ended before the deployment changed, or it was restored"
    return {"generation": last["generation"], "action": journal.UNDONE, "from": {}, "to": {}, "why": why}


def _remove_asides(root: Path) -> None:
    """Remove what killed writers left aside. The lock is held: nobody is writing these."""
    for name in (DEPLOYMENT, CURRENT):
        for aside in root.glob(f".{name}.*.partial"):
            aside.unlink(missing_ok=True)


def _read_current(root: Path) -> str | None:
    try:
        return read_regular(root / CURRENT, CURRENT_MAX_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return None

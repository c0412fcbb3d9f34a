"""Stores a change of a deployment: journal first, deployment.json second, `current` last, all under one lock.

A crash after the journal leaves a line of a generation that never was. The next writer notes it as `undone`.
"""

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from model.contract.atomic_files import write_whole
from model.contract.bundle import open_bundle, point_current
from model.contract.deployment import journal
from model.contract.deployment.changes import Change
from model.contract.deployment.document import (
    DEPLOYMENT,
    Deployment,
    DeploymentConflict,
    DeploymentRefused,
    read_deployment,
)
from model.contract.manifest import BundleError

LOCK = ".deployment.lock"
LOCK_PATIENCE_S = 10.0
_RETRY_S = 0.05


def change_deployment(
    root: Path,
    change: Change,
    *,
    action: str,
    by: str,
    why: str = "",
    evidence: Mapping[str, Any] | None = None,
    if_generation: int | None = None,
    dry_run: bool = False,
) -> Deployment:
    """Apply a change and return the deployment that stands then. With `dry_run` nothing is written.

    `action` and `why` go to the journal; `by` is cli:USER, key:ID, judge, retrain or publish.

    Raises DeploymentConflict unless the generation is `if_generation`, DeploymentRefused, DeploymentMalformed,
    BundleError if a version that the change names cannot be used, and OSError if the folder cannot be written.
    """
    with _lock(root, write=not dry_run):
        now = read_deployment(root)
        if if_generation not in (None, now.generation):
            raise DeploymentConflict(
                f"the deployment is of generation {now.generation}, not {if_generation}: look at it and try again"
            )
        wanted = change(now)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        after = _stamp(now, wanted, at=at, by=by)
        after = replace(after, digests=_pin(root, now, after))
        after.check()
        if dry_run:
            return after
        _note_undone(root, now, at=at, by=by)
        before_fields, after_fields = journal.describe(now, after)
        entry: dict[str, Any] = {
            "at": at,
            "generation": after.generation,
            "by": by,
            "action": action,
            "from": before_fields,
            "to": after_fields,
            "why": why,
        }
        journal.append(root, entry if evidence is None else {**entry, "evidence": dict(evidence)})
        write_whole(root / DEPLOYMENT, after.to_bytes())
        if after.champion != now.champion:
            point_current(root, after.champion)
        return after


def _stamp(now: Deployment, wanted: Deployment, *, at: str, by: str) -> Deployment:
    """The wanted deployment with generation, time and author, in the history, too."""
    history = wanted.history
    if wanted.champion != now.champion:
        history = (*history[:-1], replace(history[-1], at=at, by=by))
    id_key = wanted.id_key or secrets.token_hex(16)
    return replace(wanted, generation=now.generation + 1, at=at, by=by, history=history, id_key=id_key)


def _pin(root: Path, now: Deployment, after: Deployment) -> dict[str, str]:
    """The digests of the versions that are named; newly named ones must be bundles."""
    digests = {version: now.digests[version] for version in after.named if version in now.digests}
    for version in (after.champion, after.candidate):
        if version is None or version in now.named:
            continue
        with open_bundle(root / version) as bundle:
            digest = bundle.digest
        if digests.setdefault(version, digest) != digest:
            raise DeploymentRefused(f"{version} is not the bundle that it was: its manifest has changed")
    for version in after.named:
        if version not in digests:
            with contextlib.suppress(BundleError), open_bundle(root / version) as bundle:
                digests[version] = bundle.digest
    return digests


def _note_undone(root: Path, now: Deployment, *, at: str, by: str) -> None:
    last = journal.last_entry(root)
    if last is not None and last.get("action") != "undone" and last["generation"] > now.generation:
        journal.append(
            root,
            {
                "at": at,
                "generation": last["generation"],
                "by": by,
                "action": "undone",
                "from": {},
                "to": {},
                "why": "its writer ended before the deployment changed",
            },
        )


@contextlib.contextmanager
def _lock(root: Path, *, write: bool) -> Iterator[None]:
    """Hold the folder's lock. Raises DeploymentConflict if somebody else holds it for LOCK_PATIENCE_S."""
    if not write:
        yield
        return
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        until_s = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= until_s:
                    raise DeploymentConflict("somebody else is changing this folder's deployment") from error
                time.sleep(_RETRY_S)
        yield
    finally:
        os.close(descriptor)

"""The versions in a bundle folder: listed, and removed when nobody needs them any more."""

import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.contract.atomic_files import read_regular, sync_folder
from model.contract.bundle import MANIFEST, MANIFEST_MAX_BYTES
from model.contract.deployment.document import Deployment
from model.contract.manifest import BundleError, Manifest, is_plain_name

KEEP = 5
YOUNG_S = 3600.0
"""Younger versions are never pruned: their writer may be about to name them."""
ABANDONED_S = 86_400.0
"""Age beyond which nobody is writing a version any more that is still aside."""


@dataclass(frozen=True)
class Version:
    """A version in a bundle folder. `manifest` is None where it cannot be read, `fault` says why."""

    name: str
    manifest: Manifest | None
    fault: str | None
    appeared_s: float
    """When the folder got this name or content, in seconds since 1970. A copy may keep older times of its files."""


def list_versions(root: Path) -> list[Version]:
    """All versions, oldest training first; unreadable ones last. Reads manifests only. Raises OSError."""
    found = []
    for folder in root.iterdir():
        if not is_plain_name(folder.name) or not folder.is_dir() or folder.is_symlink():
            continue
        manifest, fault = None, None
        try:
            state = folder.stat()
            manifest = Manifest.from_bytes(read_regular(folder / MANIFEST, MANIFEST_MAX_BYTES))
        except FileNotFoundError:
            continue  # no bundle: a folder of somebody else's, or one that was removed meanwhile
        except (BundleError, OSError) as error:
            fault = str(error)
        found.append(Version(folder.name, manifest, fault, max(state.st_mtime, state.st_ctime)))
    return sorted(
        found, key=lambda one: (one.manifest is None, one.manifest.trained_at if one.manifest else "", one.name)
    )


def choose_pruned(
    versions: Sequence[Version],
    deployment: Deployment,
    *,
    keep: int = KEEP,
    older_than_s: float = 0.0,
    in_use: Collection[str] = (),
    now_s: float | None = None,
) -> list[str]:
    """The versions that may go: not named, not among the last `keep` champions, not in use, and not young."""
    now_s = time.time() if now_s is None else now_s
    champions = list(dict.fromkeys(entry.champion for entry in reversed(deployment.history)))[:keep]
    spared = {*deployment.named, *champions, *in_use}
    return [
        version.name
        for version in versions
        if version.name not in spared and now_s - version.appeared_s > max(YOUNG_S, older_than_s)
    ]


def remove_version(root: Path, version: str) -> None:
    """Remove a version: renamed first, so that a reader finds it whole or missing. Raises OSError."""
    if not is_plain_name(version):
        raise ValueError("not the name of a version")
    aside = root / f".{version}.pruned"
    shutil.rmtree(aside, ignore_errors=True)
    (root / version).rename(aside)
    sync_folder(root)
    shutil.rmtree(aside)


def remove_leftovers(root: Path, *, now_s: float | None = None) -> None:
    """Remove what killed processes left: versions half removed, and versions half written long ago. Raises OSError."""
    now_s = time.time() if now_s is None else now_s
    for folder in root.glob(".*.pruned"):
        shutil.rmtree(folder)
    for folder in root.glob(".*.partial"):
        if folder.is_dir() and now_s - folder.stat().st_mtime > ABANDONED_S:
            shutil.rmtree(folder, ignore_errors=True)

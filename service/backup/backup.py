"""Backs up and restores the embedded store and its archive. The service may be running during a backup.

A backup is a folder laid out like a data folder, with the digests of all files. It is a consistent snapshot: every
event that was acknowledged before it began is in the store's files or in the archive.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

from model.contract.atomic_files import sync_folder, write_synced
from service.archive.schedule import ARCHIVE
from service.backup.file_copy import copy_file
from service.backup.snapshot import ArchiveCopy, hold_moment
from service.embedded.append_only import Say, check, cut
from service.embedded.data_folder import APPEND_ONLY_FOLDER, LOCK, hold_data
from service.errors import StartFailed

DIGESTS: Final = "backup.sha256"
"""The file that marks a folder as a backup; `sha256sum -c backup.sha256` checks it."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What is in a backup."""

    store_files: int
    archive_files: int
    size: int
    """In bytes."""


def back_up(data_dir: Path, out: Path, *, archive_dir: Path | None, say: Say) -> Copied:
    """Copy the store in `data_dir` and the archive to the new folder `out`, whole or not at all.

    Without `archive_dir` the archive is the one in `data_dir`. Raises StartFailed and OSError.
    """
    if out.exists():
        raise StartFailed(f"{out} exists already: give a new folder for each backup")
    archive = data_dir / ARCHIVE if archive_dir is None else archive_dir.absolute()
    if any(out.is_relative_to(folder) for folder in (data_dir, archive)):
        raise StartFailed(f"{out} is inside the data to back up: give a folder elsewhere, ideally on another disk")
    aside = out.with_name(f".{out.name}.{os.getpid()}.partial")
    out.parent.mkdir(parents=True, exist_ok=True)
    aside.mkdir(mode=0o700)
    try:
        copy = ArchiveCopy(archive, aside / ARCHIVE, say)
        with hold_moment(data_dir, archive, copy) as moment:
            digests = {f"{ARCHIVE}/{name}": digest for name, digest in copy.digests.items()}
            for name, content in moment.notes.items():
                digests[f"{ARCHIVE}/{name}"] = copy_file(BytesIO(content), aside / ARCHIVE / name, len(content), say)
            archive_files = len(digests)
            for one in moment.store:
                say(f"Copying {one.name}, {one.size} bytes")
                name = f"{APPEND_ONLY_FOLDER}/{one.name}"
                digests[name] = copy_file(one.file, aside / name, one.size, say)
        _require_sound(aside, digests, say)
        _write_digests(aside, digests)
        aside.rename(out)
        sync_folder(out.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    size = sum((out / name).stat().st_size for name in digests)
    return Copied(len(digests) - archive_files, archive_files, size)


def restore(source: Path, data_dir: Path, *, say: Say) -> Copied:
    """Put a backup into an empty data folder, whole or not at all, and compare every byte with its digest.

    Raises StartFailed and OSError.
    """
    digests = read_digests(source)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = data_dir / f".{os.getpid()}.partial"
    with hold_data(data_dir):
        if found := sorted(path.name for path in data_dir.iterdir() if path.name != LOCK):
            raise StartFailed(
                f"{data_dir} is not empty ({found[0]}): move all of it elsewhere, or give another --data-dir"
            )
        try:
            say(f"Restoring {len(digests)} files")
            for name, digest in digests.items():
                with (source / name).open("rb") as file:
                    if copy_file(file, aside / name, os.fstat(file.fileno()).st_size, say) != digest:
                        raise StartFailed(f"{source / name} is damaged: use another backup")
            # The store last: until it is there, a service would find no events, and say so.
            for part in (ARCHIVE, APPEND_ONLY_FOLDER):
                if (aside / part).exists():
                    _sync_folders(aside / part)
                    (aside / part).rename(data_dir / part)
            sync_folder(data_dir)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    archive_files = sum(name.startswith(f"{ARCHIVE}/") for name in digests)
    return Copied(
        len(digests) - archive_files, archive_files, sum((data_dir / name).stat().st_size for name in digests)
    )


def verify(backup: Path) -> None:
    """Compare every file of a backup with its digest. Raises StartFailed and OSError."""
    for name, digest in read_digests(backup).items():
        with (backup / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise StartFailed(f"{backup / name} is damaged: use another backup")


def read_digests(backup: Path) -> dict[str, str]:
    """Name -> digest of every file. Raises StartFailed for what is no backup or lacks a file."""
    try:
        lines = (backup / DIGESTS).read_text().splitlines()
    except FileNotFoundError as error:
        raise StartFailed(f"{backup} is not a backup: it has no {DIGESTS}") from error
    digests = {}
    for line in lines:
        digest, _, name = line.partition("  ")
        path = Path(name)
        if path.is_absolute() or ".." in path.parts or path.parts[:1] not in ((APPEND_ONLY_FOLDER,), (ARCHIVE,)):
            raise StartFailed(f"{backup / DIGESTS} is damaged: use another backup")
        if not (backup / path).is_file():
            raise StartFailed(f"{backup / path} is missing: use another backup")
        digests[name] = digest
    return digests


def _require_sound(backup: Path, digests: dict[str, str], say: Say) -> None:
    """Check the copy and cut an incomplete command off its end. Raises StartFailed for damage."""
    for finding in check(backup, say).findings:
        if finding.state == "torn":
            name = f"{APPEND_ONLY_FOLDER}/{finding.part.name}"
            cut(backup / name, finding.good_bytes)
            with (backup / name).open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
        elif finding.state != "whole":
            raise StartFailed(f"the store's files are damaged, so nothing was backed up: {finding.describe()}")


def _write_digests(backup: Path, digests: Mapping[str, str]) -> None:
    write_synced(
        backup / DIGESTS,
        "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())).encode(),
        mode=0o600,
    )
    _sync_folders(backup)


def _sync_folders(folder: Path) -> None:
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        sync_folder(path)

"""Backs up and restores the embedded store and its archive. The service may be running during a backup.

A backup is a folder laid out like a data folder, with the digests of all files. It is a consistent snapshot: every
event that was acknowledged before it began is in the store's files or in the archive.

- The store only appends to its files or replaces them under other names. So open files are one state of the store if
  the manifest did not change while they were opened.
- The archive must not change while they are opened. Events of a segment written in between might be in neither copy.
- Segments are copied outside that moment, because only an erasure changes them. After an erasure the backup retries.
"""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from model.contract.atomic_files import sync_folder, write_synced
from service.archive.schedule import ARCHIVE
from service.archive.segments import LOCK as ARCHIVE_LOCK
from service.embedded.append_only import CHUNK_BYTES, Say, check, cut, read_manifest
from service.embedded.server import APPEND_ONLY_FOLDER, LOCK, MANIFEST, hold_data, open_private
from service.errors import StartFailed

DIGESTS: Final = "backup.sha256"
"""The file that marks a folder as a backup; `sha256sum -c backup.sha256` checks it."""

SEGMENT: Final = ".jsonl.gz"
WAIT_S: Final = 120.0
"""How long to try for a moment in which the archive does not change."""

PAUSE_S: Final = 0.05
PROGRESS_BYTES: Final = 256 << 20


class _Stamp(NamedTuple):
    """Values that change whenever a file of the archive changes."""

    inode: int
    size: int
    written_ns: int


_Stamps = Mapping[str, _Stamp]
"""By the names of the files."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What is in a backup."""

    store_files: int
    archive_files: int
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class _Pinned:
    """An open file of the store and its size at one moment. Later appends and removals do not affect it."""

    name: str
    file: BinaryIO
    size: int


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
        copy = _ArchiveCopy(archive, aside / ARCHIVE, say)
        with _hold_moment(data_dir, archive, copy) as moment:
            digests = {f"{ARCHIVE}/{name}": digest for name, digest in copy.digests.items()}
            for name, content in moment.notes.items():
                digests[f"{ARCHIVE}/{name}"] = _copy(BytesIO(content), aside / ARCHIVE / name, len(content), say)
            archive_files = len(digests)
            for one in moment.store:
                say(f"Copying {one.name}, {one.size} bytes")
                name = f"{APPEND_ONLY_FOLDER}/{one.name}"
                digests[name] = _copy(one.file, aside / name, one.size, say)
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
                    if _copy(file, aside / name, os.fstat(file.fileno()).st_size, say) != digest:
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


class _ArchiveCopy:
    """An incremental copy of the archive's segments: each update copies only what changed."""

    def __init__(self, archive: Path, target: Path, say: Say) -> None:
        self._archive = archive
        self._target = target
        self._say = say
        self._stamps: dict[str, _Stamp] = {}
        self.digests: dict[str, str] = {}

    def bring_to(self, wanted: _Stamps) -> bool:
        """Update the copy to the wanted state. False if a wanted file has changed or is gone."""
        for name in [name for name, stamp in self._stamps.items() if stamp != wanted.get(name)]:
            (self._target / name).unlink()
            del self._stamps[name], self.digests[name]
        missing = [name for name in wanted if name not in self._stamps]
        if missing:
            self._say(f"Copying {len(missing)} segments of the archive")
        for name in missing:
            try:
                with (self._archive / name).open("rb") as file:
                    if _stamp(os.fstat(file.fileno())) != wanted[name]:
                        return False
                    self.digests[name] = _copy(file, self._target / name, wanted[name].size, self._say)
            except FileNotFoundError:
                return False
            self._stamps[name] = wanted[name]
        return True


@dataclass(frozen=True, slots=True)
class _Moment:
    """The store and the archive at one moment."""

    store: Sequence[_Pinned]
    segments: _Stamps
    notes: Mapping[str, bytes]
    """Contents of the archive's other files, which are small and rewritten with every segment."""


@contextlib.contextmanager
def _hold_moment(data_dir: Path, archive: Path, copy: _ArchiveCopy) -> Iterator[_Moment]:
    """Hold a moment whose segments are already copied. Raises StartFailed, OSError."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        with ExitStack() as stack:
            moment = _find_moment(data_dir, archive, stack)
            if moment is not None:
                began_s = time.monotonic()
                if copy.bring_to(moment.segments):
                    yield moment
                    return
                deadline_s += (
                    time.monotonic() - began_s
                )  # copying does not count as waiting, and the next try copies only what changed
        time.sleep(PAUSE_S)
    raise StartFailed(f"the store or its archive kept changing for {WAIT_S:.0f} s: try again when the archiver is done")


def _find_moment(data_dir: Path, archive: Path, stack: ExitStack) -> _Moment | None:
    """The store between two identical listings of the archive; None if anything changed in between."""
    before = _list_archive(archive)
    segments = {name: stamp for name, stamp in before.items() if name.endswith(SEGMENT)}
    try:
        notes = {name: (archive / name).read_bytes() for name in before if name not in segments}
    except FileNotFoundError:
        return None
    pinned = _pin_store(data_dir, stack)
    if pinned is None or _list_archive(archive) != before:
        return None
    return _Moment(pinned, segments, notes)


def _pin_store(data_dir: Path, stack: ExitStack) -> list[_Pinned] | None:
    """Open the manifest and all files that it names; None if they changed while they were opened."""
    folder = data_dir / APPEND_ONLY_FOLDER
    try:
        manifest = stack.enter_context((folder / MANIFEST).open("rb"))
        text = manifest.read()
        parts = read_manifest(text.decode())
    except (FileNotFoundError, ValueError) as error:
        raise StartFailed(f"{data_dir} holds no store to back up: give the --data-dir that the service uses") from error
    manifest.seek(0)
    try:
        files = [stack.enter_context((folder / part.name).open("rb")) for part in parts]
        unchanged = (folder / MANIFEST).read_bytes() == text
    except FileNotFoundError as error:
        if (folder / MANIFEST).exists() and (folder / MANIFEST).read_bytes() == text:
            raise StartFailed(
                f"{error.filename} is missing: stop the service and run `nextitem-serve store check`"
            ) from error
        return None
    if not unchanged:
        return None
    # All acknowledged events are in the files by now. Later bytes are not needed.
    pinned = [
        _Pinned(part.name, file, os.fstat(file.fileno()).st_size) for part, file in zip(parts, files, strict=True)
    ]
    return [*pinned, _Pinned(MANIFEST, manifest, len(text))]


def _list_archive(archive: Path) -> _Stamps:
    """The archive's files, without its lock and partial files. Empty without an archive."""
    if not archive.is_dir():
        return {}
    found = {}
    for path in archive.rglob("*"):
        if path.name == ARCHIVE_LOCK or path.name.endswith(".partial"):
            continue
        with contextlib.suppress(FileNotFoundError):  # replaced since it was listed
            if path.is_file():
                state = path.stat()
                found[str(path.relative_to(archive))] = _stamp(state)
    return found


def _stamp(state: os.stat_result) -> _Stamp:
    return _Stamp(state.st_ino, state.st_size, state.st_mtime_ns)


def _copy(file: BinaryIO, target: Path, size: int, say: Say) -> str:
    """Copy the first `size` bytes of a file and sync them to disk. Returns their SHA-256."""
    digest, done, said = hashlib.sha256(), 0, 0
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(target, "wb", opener=open_private) as copy:
        while chunk := file.read(min(CHUNK_BYTES, size - done)):
            digest.update(chunk)
            copy.write(chunk)
            done += len(chunk)
            if done - said >= PROGRESS_BYTES:
                say(f"{target.name}: {100 * done // size} %")
                said = done
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest()


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

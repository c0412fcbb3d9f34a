"""A consistent snapshot of the running store and its archive.

- The store only appends to its files or replaces them under other names. So open files are one state of the store if
  the manifest did not change while they were opened.
- The archive must not change while they are opened. Events of a segment written in between might be in neither copy.
- Segments are copied outside that moment, because only an erasure changes them. After an erasure the backup retries.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from model.contract.event_archive import LOCK as ARCHIVE_LOCK
from model.contract.event_archive import SUFFIX
from service.backup.file_copy import copy_file
from service.embedded.append_only import Say, read_manifest
from service.embedded.data_folder import APPEND_ONLY_FOLDER, MANIFEST
from service.errors import StartFailed

WAIT_S: Final = 120.0
"""How long to try for a moment in which the archive does not change."""

PAUSE_S: Final = 0.05


class _Stamp(NamedTuple):
    """Values that change whenever a file of the archive changes."""

    inode: int
    size: int
    written_ns: int


_Stamps = Mapping[str, _Stamp]
"""By the names of the files."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """An open file of the store and its size at one moment. Later appends and removals do not affect it."""

    name: str
    file: BinaryIO
    size: int


class ArchiveCopy:
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
                    self.digests[name] = copy_file(file, self._target / name, wanted[name].size, self._say)
            except FileNotFoundError:
                return False
            self._stamps[name] = wanted[name]
        return True


@dataclass(frozen=True, slots=True)
class Moment:
    """The store and the archive at one moment."""

    store: Sequence[Pinned]
    segments: _Stamps
    notes: Mapping[str, bytes]
    """Contents of the archive's other files, which are small and rewritten with every segment."""


@contextlib.contextmanager
def hold_moment(data_dir: Path, archive: Path, copy: ArchiveCopy) -> Iterator[Moment]:
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


def _find_moment(data_dir: Path, archive: Path, stack: ExitStack) -> Moment | None:
    """The store between two identical listings of the archive; None if anything changed in between."""
    before = _list_archive(archive)
    segments = {name: stamp for name, stamp in before.items() if name.endswith(SUFFIX)}
    try:
        notes = {name: (archive / name).read_bytes() for name in before if name not in segments}
    except FileNotFoundError:
        return None
    pinned = _pin_store(data_dir, stack)
    if pinned is None or _list_archive(archive) != before:
        return None
    return Moment(pinned, segments, notes)


def _pin_store(data_dir: Path, stack: ExitStack) -> list[Pinned] | None:
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
    pinned = [Pinned(part.name, file, os.fstat(file.fileno()).st_size) for part, file in zip(parts, files, strict=True)]
    return [*pinned, Pinned(MANIFEST, manifest, len(text))]


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

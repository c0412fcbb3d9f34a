"""A bundle: the folder that a trainer publishes and a service serves.

```
bundles/current                     the version in use, one line
bundles/<version>/manifest.json     fields and the sha256 of every other file (manifest.py)
                  network.onnx      the graph: encoder, exclusion, candidates and top-k (model/export/graph.py)
                  vocabulary.txt    V item ids in ascending order, line i holding index i
                  counts.npy        (V) int64: how often each item occurs in the whole log, for the popular list
                  golden.json       questions with their answers (golden.py)
                  metadata.jsonl    optional: V JSON objects, line i describing index i
                  attributes.npy    optional: what the items can be filtered by (attributes.py)
                  sessions.npy      optional: who met what, for answers without the network (sessions.py)
                  rules.npy         optional: what followed what, for comparison with the network (rules.py)
                  event_types.txt   optional: the event types that the graph knows, line i being code i
                  similar.onnx      optional, with similar_golden.json: which items are like others (similar.py)
```
A version appears whole or not at all: it is written aside, synced and renamed. Readers get bytes whose digests were
verified before anything parses them; nothing is mapped into memory, so a file changed later changes nothing.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.contract.atomic_files import read_regular, sync_folder, write_synced, write_whole
from model.contract.attributes import Attributes
from model.contract.bundle_content import decode_counts, decode_types
from model.contract.golden import Golden, golden_from_bytes
from model.contract.manifest import (
    BundleCorrupt,
    BundleError,
    BundleFormat,
    BundleMissing,
    File,
    Manifest,
    is_plain_name,
)
from model.contract.rules import Rules
from model.contract.sessions import Sessions
from model.contract.similar import SimilarGraph, find_similar
from model.contract.vocabulary import Vocabulary, VocabularyError

MANIFEST = "manifest.json"
NETWORK = "network.onnx"
VOCABULARY = "vocabulary.txt"
COUNTS = "counts.npy"
GOLDEN = "golden.json"
METADATA = "metadata.jsonl"
ATTRIBUTES = "attributes.npy"
SESSIONS = "sessions.npy"
RULES = "rules.npy"
EVENT_TYPES = "event_types.txt"
CURRENT = "current"

CURRENT_MAX_BYTES = 4096
MANIFEST_MAX_BYTES = 1024 * 1024
FILE_MAX_BYTES = 2 * 1024**3
"""What a graph in one file can have: Protocol Buffers end there."""

_REQUIRED = (NETWORK, VOCABULARY, COUNTS, GOLDEN)
T = TypeVar("T")


@dataclass(frozen=True)
class Bundle:
    """A verified bundle in memory. `digest` is the sha256 of its manifest, which covers every file."""

    manifest: Manifest
    digest: str
    network: bytes
    vocabulary: Vocabulary
    counts: NDArray[np.int64]
    golden: tuple[Golden, ...]
    metadata: tuple[bytes, ...] | None
    sessions: Sessions | None
    event_types: tuple[str, ...] = ()
    attributes: Attributes | None = None
    similar: SimilarGraph | None = None
    rules: Rules | None = None

    def rank_popular(self) -> NDArray[np.int32]:
        """The whole catalogue's indexes by falling count, equal counts by item id. Shape (V)."""
        return (np.argsort(-self.counts, kind="stable") + 1).astype(np.int32)


def describe_file(content: bytes) -> File:
    """Size and digest of one file."""
    return File(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def write_bundle(root: Path, manifest: Manifest, files: Mapping[str, bytes]) -> Path:
    """Write `root`/<version> whole or not at all and return it; an existing version is left as it is.

    `manifest.files` must describe `files`. Does not move `current`: `point_current` does.
    """
    target = root / manifest.version
    if target.exists():
        return target
    root.mkdir(parents=True, exist_ok=True)
    aside = root / f".{manifest.version}.{os.getpid()}.partial"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        for name, content in {**files, MANIFEST: manifest.to_bytes()}.items():
            write_synced(aside / name, content)
        sync_folder(aside)
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    sync_folder(root)
    return target


def point_current(root: Path, version: str) -> None:
    """Make `version` the one that readers of `root` get, atomically."""
    write_whole(root / CURRENT, f"{version}\n".encode())


def locate_bundle(path: Path) -> Path:
    """The bundle's own folder, given it or a folder with `current`. Raises BundleMissing or BundleFormat."""
    if (path / MANIFEST).is_file():
        return path
    try:
        version = read_regular(path / CURRENT, CURRENT_MAX_BYTES).decode("ascii").strip()
    except FileNotFoundError as error:
        raise BundleMissing(f"{path} holds neither {MANIFEST} nor {CURRENT}: publish a bundle there first") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BundleFormat(f"{path / CURRENT} cannot be read as a version") from error
    if not is_plain_name(version):
        raise BundleFormat(f"{path / CURRENT} does not name a version")
    if not (path / version / MANIFEST).is_file():
        raise BundleMissing(f"{path / CURRENT} names {version}, which has no {MANIFEST}")
    return path / version


class OpenBundle:
    """The open files of a bundle, which can be read after its folder was removed: as often as one likes, until closed.

    It can be handed to a process that multiprocessing spawns. Whoever has it may read at the same time as others.
    """

    def __init__(self, folder: Path, manifest: Manifest, digest: str, descriptors: Mapping[str, int]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.digest = digest
        """The sha256 of the manifest, which covers every file."""
        self._descriptors = descriptors

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        descriptors = {name: DupFd(descriptor) for name, descriptor in self._descriptors.items()}
        return _take_over, (self.folder, self.manifest, self.digest, descriptors)

    @property
    def descriptors(self) -> Mapping[str, int]:
        """The open files by name, to be inherited by a process that calls `inherit_bundle`."""
        return self._descriptors

    def close(self) -> None:
        """Let go of the files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}

    def read(self) -> Bundle:
        """Read and verify all files. Raises BundleError naming file and fault."""
        folder, manifest = self.folder, self.manifest
        contents = {name: self._read_verified(name, file) for name, file in manifest.files.items()}
        vocabulary, counts = self._decode_catalogue(contents)
        golden = golden_from_bytes(contents[GOLDEN])
        lines = contents[METADATA].splitlines() if METADATA in contents else None
        if lines is not None and len(lines) != len(vocabulary):
            raise BundleFormat(f"{folder}: {METADATA} has {len(lines)} lines for {len(vocabulary)} items")
        try:
            event_types = decode_types(contents.get(EVENT_TYPES, b""))
        except ValueError as error:
            raise BundleFormat(f"{folder}: {EVENT_TYPES} is not {error}") from error
        return Bundle(
            manifest=manifest,
            digest=self.digest,
            network=contents[NETWORK],
            vocabulary=vocabulary,
            counts=counts,
            golden=golden,
            metadata=tuple(lines) if lines is not None else None,
            sessions=self._decode_optional(contents, SESSIONS, Sessions.from_bytes),
            event_types=event_types,
            attributes=self._decode_optional(contents, ATTRIBUTES, Attributes.from_bytes),
            similar=find_similar(contents),
            rules=self._decode_optional(contents, RULES, Rules.from_bytes),
        )

    def read_catalogue(self) -> tuple[Vocabulary, NDArray[np.int64]]:
        """Read and verify the item ids and their counts (V) only. Raises BundleError naming file and fault."""
        return self._decode_catalogue(
            {name: self._read_verified(name, self.manifest.files[name]) for name in (VOCABULARY, COUNTS)}
        )

    def _decode_optional(self, contents: Mapping[str, bytes], name: str, decode: Callable[[bytes, int], T]) -> T | None:
        """What a file holds for the bundle's items, None if there is none. Raises BundleFormat."""
        if name not in contents:
            return None
        try:
            return decode(contents[name], self.manifest.item_count)
        except ValueError as error:
            raise BundleFormat(f"{self.folder}: {name} holds {error}") from error

    def _decode_catalogue(self, contents: Mapping[str, bytes]) -> tuple[Vocabulary, NDArray[np.int64]]:
        try:
            vocabulary = Vocabulary.from_bytes(contents[VOCABULARY])
        except VocabularyError as error:
            raise BundleFormat(f"{self.folder}: {VOCABULARY}: {error}") from error
        if len(vocabulary) != self.manifest.item_count:
            raise BundleFormat(
                f"{self.folder}: {VOCABULARY} has {len(vocabulary)} items, the manifest {self.manifest.item_count}"
            )
        try:
            return vocabulary, decode_counts(contents[COUNTS], len(vocabulary))
        except ValueError as error:
            raise BundleFormat(f"{self.folder}: {COUNTS} is {error}") from error

    def _read_verified(self, name: str, file: File) -> bytes:
        descriptor = self._descriptors[name]
        try:
            size = os.fstat(descriptor).st_size
            if size != file.bytes:
                raise BundleCorrupt(f"{self.folder}: {name} has {size} bytes, the manifest says {file.bytes}")
            if size > FILE_MAX_BYTES:
                raise BundleFormat(f"{self.folder}: {name} is larger than {FILE_MAX_BYTES} bytes")
            content = _read_from_start(descriptor, size)
        except OSError as error:
            raise BundleError(f"{self.folder}: {name} cannot be read ({error.strerror})") from error
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise BundleCorrupt(f"{self.folder}: the digest of {name} is not the one in the manifest")
        return content


def open_bundle(path: Path) -> OpenBundle:
    """Open the files of a bundle, given its folder or one with `current`. Raises BundleError naming file and fault.

    What they hold is verified when they are read, each time.
    """
    folder = locate_bundle(path)
    with ExitStack() as opened:
        content = _read_manifest(folder)
        manifest = Manifest.from_bytes(content)
        for name in _REQUIRED:
            if name not in manifest.files:
                raise BundleFormat(f"{folder}: the manifest lists no {name}")
        descriptors = {}
        for name in manifest.files:
            descriptors[name] = _open(folder, name)
            opened.callback(os.close, descriptors[name])
        opened.pop_all()  # they stay open
    return OpenBundle(folder, manifest, hashlib.sha256(content).hexdigest(), descriptors)


def inherit_bundle(folder: Path, manifest: bytes, digest: str, descriptors: Mapping[str, int]) -> OpenBundle:
    """The same bundle in a process that inherited its files. Raises BundleError if the manifest cannot be read."""
    return OpenBundle(folder, Manifest.from_bytes(manifest), digest, descriptors)


def read_bundle(path: Path) -> Bundle:
    """Read and verify a bundle, given its folder or one with `current`. Raises BundleError naming file and fault."""
    with open_bundle(path) as bundle:
        return bundle.read()


def _take_over(folder: Path, manifest: Manifest, digest: str, descriptors: Mapping[str, Any]) -> OpenBundle:
    """The same bundle in another process."""
    return OpenBundle(folder, manifest, digest, {name: sent.detach() for name, sent in descriptors.items()})


def _read_manifest(folder: Path) -> bytes:
    descriptor = _open(folder, MANIFEST)
    try:
        content = _read_from_start(descriptor, MANIFEST_MAX_BYTES + 1)
    except OSError as error:
        raise BundleError(f"{folder}: {MANIFEST} cannot be read ({error.strerror})") from error
    finally:
        os.close(descriptor)
    if len(content) > MANIFEST_MAX_BYTES:
        raise BundleFormat(f"{folder}: {MANIFEST} is larger than {MANIFEST_MAX_BYTES} bytes")
    return content


def _open(folder: Path, name: str) -> int:
    """A file of the bundle's own: what a link leads to may be any file of this machine, or change behind our back."""
    try:
        # A pipe is opened at once, to be refused.
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise BundleMissing(f"{folder}: {name} is missing") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BundleFormat(f"{folder}: {name} is a link: a bundle holds its files itself") from error
        raise BundleError(f"{folder}: {name} cannot be read ({error.strerror})") from error
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
        os.close(descriptor)
        raise BundleFormat(f"{folder}: {name} is a link or no file: a bundle holds its files itself")
    return descriptor


def _read_from_start(descriptor: int, size: int) -> bytes:
    """Up to so many bytes of a file. Moves no offset, which processes share."""
    portions: list[bytes] = []  # one, unless the kernel gives less than 2 GiB at once
    while size > 0 and (portion := os.pread(descriptor, size, sum(map(len, portions)))):
        portions.append(portion)
        size -= len(portion)
    return b"".join(portions)

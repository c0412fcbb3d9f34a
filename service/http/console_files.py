"""The console's files: read and compressed once, then served from memory under a path that holds their digest."""

import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Self

FOLDER = files("service.http").joinpath("pages", "console")
INDEX = "index.html"

_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript"}
_TAKES_GZIP = re.compile(r"(?:^|,)\s*gzip\s*(?:,|$|;\s*q=(?!0(?:\.0*)?\s*(?:,|$)))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """One file, as it is and compressed."""

    content: bytes
    gzipped: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class ConsoleFiles:
    """The scripts and styles of the console by path, and the digest of all of them.

    A change of any file changes every address: a browser may keep what it has, and never mixes two versions.
    """

    files: Mapping[str, ConsoleFile]
    digest: str

    @classmethod
    def read(cls) -> Self:
        """Read them from the package."""
        contents = dict(sorted(_walk(FOLDER)))
        digest = hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents.values()))
        found = {
            path: ConsoleFile(content, gzip.compress(content, 9, mtime=0), _MEDIA_TYPES[_suffix(path)])
            for path, content in contents.items()
        }
        return cls(found, digest.hexdigest()[:16])


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a client with this Accept-Encoding takes gzip."""
    return _TAKES_GZIP.search(accept_encoding) is not None


def _walk(folder: Traversable, under: str = "") -> Iterator[tuple[str, bytes]]:
    """Path and content of every script and style."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{under}{entry.name}/")
        elif _suffix(entry.name) in _MEDIA_TYPES:
            yield under + entry.name, entry.read_bytes()


def _suffix(path: str) -> str:
    return path[path.rfind(".") :]

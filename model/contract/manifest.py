"""What a bundle says of itself: the fields of manifest.json and their checks."""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any

FORMAT = 1
"""The only format that this version writes and reads. A change that an old reader would misread raises it."""

_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")


class BundleError(Exception):
    """A bundle cannot be used. The message says which and why.

    BundleError
    ├── BundleMissing   there is no bundle, or no file that it names
    ├── BundleFormat    manifest.json or a file is not what this version reads
    └── BundleCorrupt   a file's content is not what the manifest promises
    """


class BundleMissing(BundleError):
    """There is no bundle at that path, or a file that it names is not there."""


class BundleFormat(BundleError):
    """The manifest or a file is of an unknown format or malformed."""


class BundleCorrupt(BundleError):
    """A file's size or digest differs from the manifest."""


def is_plain_name(value: object) -> bool:
    """Tell whether a value may name a file or a version: no separators, no leading dot, at most 64 characters."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a bundle."""

    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of manifest.json. Times are RFC 3339 in UTC; `last_event_at` is null for logs without times."""

    name: str
    version: str
    item_count: int
    max_length: int
    width: int
    layers: int
    heads: int
    """1 in networks without attention, and so are layers where there are none."""
    trained_at: str
    last_event_at: str | None
    data_fingerprint: str
    metrics: Mapping[str, float]
    inputs: tuple[str, ...]
    """The graph's inputs by name; the service refuses a bundle that wants one that it cannot give."""
    files: Mapping[str, File]
    format: int = FORMAT
    lineage: Mapping[str, Any] | None = None
    """Of a retrained bundle: its parent and what it was compared with, `metrics` being from before its refit.

    Readers that do not know the field skip it, and other bundles do not have it.
    """

    def to_bytes(self) -> bytes:
        """The text of manifest.json."""
        document = {name: value for name, value in asdict(self).items() if name not in _OPTIONAL or value is not None}
        return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Manifest":
        """Read manifest.json. Raises BundleFormat naming the first field that is wrong."""
        try:
            document: Any = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise BundleFormat("manifest.json is not JSON") from error
        if not isinstance(document, dict):
            raise BundleFormat("manifest.json is not an object")
        if type(document.get("format")) is not int or document["format"] != FORMAT:  # True and 1.0 equal 1
            raise BundleFormat(f"unknown bundle format {document.get('format')!r}: this version reads format {FORMAT}")
        names = {field.name for field in fields(cls)} - (_OPTIONAL - document.keys())
        for name in sorted(names - document.keys()):
            raise BundleFormat(f"manifest.json lacks {name!r}")
        for name, (holds, wanted) in _RULES.items():
            if name in names and not holds(document[name]):
                raise BundleFormat(f"manifest.json: {name!r} must be {wanted}")
        known = {name: document[name] for name in names}
        files = {name: File(sha256=entry["sha256"], bytes=entry["bytes"]) for name, entry in document["files"].items()}
        return cls(**{**known, "inputs": tuple(document["inputs"]), "files": files})


def is_count(value: object, *, least: int = 1) -> bool:
    """Tell whether a value of a JSON document is a whole number from `least` on; true and 1.0 are none."""
    return type(value) is int and value >= least


def is_number(value: object) -> bool:
    """Tell whether a value of a JSON document is a number that a float can hold, neither infinite nor NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).utcoffset() == timedelta(0)
    except ValueError:
        return False


def _is_file_table(value: object) -> bool:
    return isinstance(value, dict) and all(
        is_plain_name(name)
        and isinstance(entry, dict)
        and isinstance(entry.get("sha256"), str)
        and re.fullmatch(r"[0-9a-f]{64}", entry["sha256"]) is not None
        and is_count(entry.get("bytes"), least=0)
        for name, entry in value.items()
    )


def _is_metric_table(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


_OPTIONAL = {"lineage"}
_RULES = {
    "name": (is_plain_name, "a plain name"),
    "version": (is_plain_name, "a plain name"),
    **dict.fromkeys(("item_count", "width", "layers", "heads"), (is_count, "a positive integer")),
    "max_length": (lambda value: is_count(value, least=2), "an integer of at least 2"),
    "trained_at": (_is_time, "a time in UTC"),
    "last_event_at": (lambda value: value is None or _is_time(value), "a time in UTC or null"),
    "data_fingerprint": (_is_text, "a string"),
    "metrics": (_is_metric_table, "an object of finite numbers"),
    "inputs": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of names"),
    "lineage": (lambda value: isinstance(value, dict), "an object"),
    "files": (_is_file_table, "an object of {sha256, bytes} by plain file name"),
}

"""The file of keys: who may call, and what for.

```
{"format": 1, "keys": [{"id": "4be0643f1d98", "sha256": "…", "scopes": ["events"],
                        "created": "2026-11-21T10:15:00Z", "note": "the shop"}]}
```
A key is `nk_<id>_<secret>`. The file holds the secret's sha256 alone: 256 random bits cannot be guessed, so that a slow
hash would protect nothing more. Whoever changes the file replaces it whole, under a lock on its folder.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from model.contract.files import write_whole
from service.errors import KeysUnusable

Scope = Literal["recommend", "events", "admin", "metrics"]
"""What a key may be for. `admin` is for users' data: export and deletion."""
SCOPES: tuple[Scope, ...] = get_args(Scope)

FORMAT = 1
NOTE_MAX = 200
_MAX_BYTES = 1024 * 1024
_KEY = re.compile(r"nk_([0-9a-z]{1,32})_([A-Za-z0-9_-]{43,128})")
_ID = re.compile(r"[0-9a-z]{1,32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Key:
    """One key as the file keeps it."""

    id: str
    sha256: str
    scopes: tuple[Scope, ...]
    created: str
    note: str


def split_key(key: str) -> tuple[str, str] | None:
    """The id of a key and the sha256 of its secret, or None for what is no key."""
    found = _KEY.fullmatch(key)
    return (found[1], hashlib.sha256(found[2].encode()).hexdigest()) if found else None


def read_keys(file: Path) -> tuple[Key, ...]:
    """All keys of a file. Raises KeysUnusable."""
    try:
        with file.open("rb") as source:
            content = source.read(_MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise KeysUnusable(f"{file} is not there: make it by nextitem-serve keys create") from error
    except OSError as error:
        raise KeysUnusable(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise KeysUnusable(f"{file} is larger than {_MAX_BYTES} bytes")
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise KeysUnusable(f"{file} is not JSON") from error
    if not isinstance(document, dict) or document.keys() != {"format", "keys"} or document["format"] != FORMAT:
        raise KeysUnusable(f"{file} is no file of keys of format {FORMAT}")
    entries = document["keys"]
    if not isinstance(entries, list) or not all(map(_is_key, entries)):
        raise KeysUnusable(f"{file} holds a key that is not as nextitem-serve keys writes it")
    keys = tuple(Key(**{**entry, "scopes": tuple(entry["scopes"])}) for entry in entries)
    if len({key.id for key in keys}) != len(keys):
        raise KeysUnusable(f"{file} holds an id twice")
    return keys


def create_key(file: Path, scopes: Sequence[Scope], *, note: str = "") -> str:
    """Add a key to a file, which is made if need be; the key, which is kept nowhere. Raises KeysUnusable."""
    with _locked(file):
        keys = read_keys(file) if file.exists() else ()
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        ordered = tuple(scope for scope in SCOPES if scope in scopes)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        _write(file, [*keys, Key(key_id, digest, ordered, created, note)])
    return f"nk_{key_id}_{secret}"


def revoke_keys(file: Path, key_ids: Sequence[str]) -> None:
    """Take keys out of a file, all or none. Raises KeysUnusable, for an unknown id too."""
    with _locked(file):
        keys = read_keys(file)
        unknown = set(key_ids) - {key.id for key in keys}
        if unknown:
            raise KeysUnusable(f"{file} holds no key with the id {', '.join(sorted(unknown))}: nothing was revoked")
        _write(file, [key for key in keys if key.id not in key_ids])


def _is_key(entry: object) -> bool:
    if not isinstance(entry, dict) or entry.keys() != Key.__dataclass_fields__.keys():
        return False
    scopes = entry["scopes"]
    return (
        all(isinstance(entry[name], str) for name in ("id", "sha256", "created", "note"))
        and _ID.fullmatch(entry["id"]) is not None
        and _DIGEST.fullmatch(entry["sha256"]) is not None
        and isinstance(scopes, list)
        and bool(scopes)
        and all(scope in SCOPES for scope in scopes)
    )


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Wait for whoever changes files of the same folder."""
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise KeysUnusable(f"{file.parent} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(file: Path, keys: Sequence[Key]) -> None:
    """Replace the file. A new one is its owner's alone; one that was there keeps its owner and its mode."""
    content = json.dumps({"format": FORMAT, "keys": [asdict(key) for key in keys]}, indent=1) + "\n"
    try:
        old = file.stat() if file.exists() else None
        if old is None:
            write_whole(file, content.encode(), mode=0o600)
        else:
            write_whole(file, content.encode(), mode=stat.S_IMODE(old.st_mode), owner=(old.st_uid, old.st_gid))
    except OSError as error:
        raise KeysUnusable(f"{file} cannot be written: {error.strerror}") from error

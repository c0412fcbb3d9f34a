"""The API key file: keys, their scopes and their notes.

```
{"format": 1, "keys": [{"id": "4be0643f1d98", "sha256": "…", "scopes": ["events"],
                        "created": "2026-11-21T10:15:00Z", "note": "the shop"}]}
```
A key is `nk_<id>_<secret>`. The file holds only the secret's sha256: 256 random bits cannot be guessed, so a slow hash
would add no protection. Each change replaces the whole file, under a lock on its folder.
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

from model.contract.atomic_files import read_regular, write_whole
from service.errors import KeysUnusable

Scope = Literal["recommend", "events", "admin", "metrics"]
"""What a key allows. `admin` allows access to users' data: export and deletion."""
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
    """The id of a key and the sha256 of its secret, or None if the text is not a key."""
    found = _KEY.fullmatch(key)
    return (found[1], hashlib.sha256(found[2].encode()).hexdigest()) if found else None


def read_keys(file: Path) -> tuple[Key, ...]:
    """All keys of a file. Raises KeysUnusable."""
    try:
        content = read_regular(
            file, _MAX_BYTES + 1
        )  # runs on the event loop: regular files only, since reading a pipe might never end
    except FileNotFoundError as error:
        raise KeysUnusable(f"{file} does not exist: create it with `nextitem-serve keys create`") from error
    except OSError as error:
        raise KeysUnusable(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise KeysUnusable(f"{file} is larger than {_MAX_BYTES} bytes")
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise KeysUnusable(f"{file} is not JSON") from error
    if not isinstance(document, dict) or document.keys() != {"format", "keys"} or document["format"] != FORMAT:
        raise KeysUnusable(f"{file} is not an API key file of format {FORMAT}")
    entries = document["keys"]
    if not isinstance(entries, list) or not all(map(_is_key, entries)):
        raise KeysUnusable(f"{file} holds an invalid key: change it with `nextitem-serve keys` only")
    keys = tuple(Key(**{**entry, "scopes": tuple(entry["scopes"])}) for entry in entries)
    if len({key.id for key in keys}) != len(keys):
        raise KeysUnusable(f"{file} holds the same key id twice")
    return keys


def is_exposed(file: Path) -> bool:
    """Whether users other than the owner and the group may read or write a file of keys. Raises KeysUnusable."""
    try:
        return bool(file.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))
    except OSError as error:
        raise KeysUnusable(f"{file} cannot be read: {error.strerror}") from error


def create_key(file: Path, scopes: Sequence[Scope], *, note: str = "") -> str:
    """Add a key to a file, creating it if needed. Returns the key, which is stored nowhere. Raises KeysUnusable."""
    with _locked(file):
        keys = read_keys(file) if file.exists() else ()
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        ordered = tuple(scope for scope in SCOPES if scope in scopes)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        _write(file, [*keys, Key(key_id, digest, ordered, created, note)])
    return f"nk_{key_id}_{secret}"


def revoke_keys(file: Path, key_ids: Sequence[str]) -> None:
    """Remove keys from a file, all or none. Raises KeysUnusable, also for an unknown id."""
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
    """Hold the lock on the file's folder. Waits for other holders."""
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
    """Replace the file. A new file is readable by its owner only; an existing one keeps its owner and mode."""
    content = json.dumps({"format": FORMAT, "keys": [asdict(key) for key in keys]}, indent=1) + "\n"
    try:
        old = file.stat() if file.exists() else None
        if old is None:
            write_whole(file, content.encode(), mode=0o600)
        else:
            write_whole(file, content.encode(), mode=stat.S_IMODE(old.st_mode), owner=(old.st_uid, old.st_gid))
    except OSError as error:
        raise KeysUnusable(f"{file} cannot be written: {error.strerror}") from error

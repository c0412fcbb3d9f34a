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
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, ValidationError

from model.contract.atomic_files import read_regular, write_whole
from service.errors import KeysUnusable

Scope = Literal["recommend", "events", "catalogue", "admin", "models", "metrics"]
"""What a key allows. `admin` allows access to users' data: export and deletion; `models` to say which model answers;
`catalogue` to change items."""
SCOPES: tuple[Scope, ...] = get_args(Scope)

NOTE_MAX = 200
_MAX_BYTES = 1024 * 1024
_KEY = re.compile(r"nk_([0-9a-z]{1,32})_([A-Za-z0-9_-]{43,128})")


class Key(BaseModel, frozen=True, strict=True, extra="forbid"):
    """One key as the file keeps it."""

    id: Annotated[str, Field(pattern="^[0-9a-z]{1,32}$")]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1, strict=False)]
    created: str
    note: str


class _KeyFile(BaseModel, strict=True, extra="forbid"):
    format: Literal[1]
    keys: list[Key]


def split_key(key: str) -> tuple[str, str] | None:
    """The id of a key and the sha256 of its secret, or None if the text is not a key."""
    found = _KEY.fullmatch(key)
    return (found[1], hashlib.sha256(found[2].encode()).hexdigest()) if found else None


def read_keys(file: Path) -> tuple[Key, ...]:
    """All keys of a file. Raises KeysUnusable."""
    try:
        # Runs on the event loop: regular files only, since reading a pipe might never end.
        content = read_regular(file, _MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise KeysUnusable(f"{file} does not exist: create it with `nextitem-serve keys create`") from error
    except OSError as error:
        raise KeysUnusable(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise KeysUnusable(f"{file} is larger than {_MAX_BYTES} bytes")
    try:
        keys = tuple(_KeyFile.model_validate(json.loads(content)).keys)
    except ValidationError as error:
        what = "an invalid key" if all(entry["loc"][:1] == ("keys",) for entry in error.errors()) else "another format"
        raise KeysUnusable(f"{file} holds {what}: change it with `nextitem-serve keys` only") from None
    except (ValueError, RecursionError) as error:
        raise KeysUnusable(f"{file} is not JSON") from error
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
        key = Key(id=key_id, sha256=digest, scopes=ordered, created=created, note=note)
        _write(file, [*keys, key])
    return f"nk_{key_id}_{secret}"


def revoke_keys(file: Path, key_ids: Sequence[str]) -> None:
    """Remove keys from a file, all or none. Raises KeysUnusable, also for an unknown id."""
    with _locked(file):
        keys = read_keys(file)
        unknown = set(key_ids) - {key.id for key in keys}
        if unknown:
            raise KeysUnusable(f"{file} holds no key with the id {', '.join(sorted(unknown))}: nothing was revoked")
        _write(file, [key for key in keys if key.id not in key_ids])


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
    content = json.dumps(_KeyFile(format=1, keys=list(keys)).model_dump(), indent=1) + "\n"
    try:
        old = file.stat() if file.exists() else None
        if old is None:
            write_whole(file, content.encode(), mode=0o600)
        else:
            write_whole(file, content.encode(), mode=stat.S_IMODE(old.st_mode), owner=(old.st_uid, old.st_gid))
    except OSError as error:
        raise KeysUnusable(f"{file} cannot be written: {error.strerror}") from error

"""Asks a running archiver for a run now, by files in its folder: `archive --once` beside it.

```
archive/asked      a token, written by whoever wants the archive to be fresh
        answered   the token of the last request that was honoured, and why the run failed, if it did
```
The archiver looks every second. It takes the request away before its run begins, so that a request which comes
meanwhile is another one: the answered run began after its request.
"""

import contextlib
import secrets
import time
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from model.contract.atomic_files import read_regular, write_whole

ASKED: Final = "asked"
ANSWERED: Final = "answered"
LOOK_S: Final = 1.0
"""How often the archiver looks for a request."""
_MODE: Final = 0o600
_MAX_BYTES: Final = 4096


class Reply(NamedTuple):
    """What a run came to: no failure, or a sentence."""

    failure: str | None


def ask(folder: Path) -> str:
    """Ask for a run. Returns the token of the request, which is that of others who ask meanwhile. Raises OSError."""
    token = _read_token(folder)
    if token is None:
        token = secrets.token_hex(16)
        write_whole(folder / ASKED, token.encode(), mode=_MODE)
    return token


def withdraw(folder: Path) -> None:
    """Take a request back. Raises OSError."""
    (folder / ASKED).unlink(missing_ok=True)


def take(folder: Path) -> str | None:
    """Take the request of the moment, if there is one. A folder that cannot be read asks for nothing."""
    token = _read_token(folder)
    if token is not None:
        with contextlib.suppress(OSError):
            withdraw(folder)
            return token
    return None


def answer(folder: Path, token: str, failure: str | None) -> None:
    """Say what the run of a request came to. Raises OSError."""
    write_whole(folder / ANSWERED, orjson.dumps({"token": token, "failure": failure}), mode=_MODE)


def read_reply(folder: Path, token: str) -> Reply | None:
    """The reply to a request, if there is one."""
    try:
        document = orjson.loads(read_regular(folder / ANSWERED, _MAX_BYTES))
        return Reply(document["failure"]) if document["token"] == token else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def wait_for_request(folder: Path, seconds: float) -> str | None:
    """Wait so long, or until somebody asks. Returns the token of the request, which is taken."""
    until_s = time.monotonic() + seconds
    while True:
        token = take(folder)
        left_s = until_s - time.monotonic()
        if token is not None or left_s <= 0:
            return token
        time.sleep(min(LOOK_S, left_s))


def _read_token(folder: Path) -> str | None:
    try:
        return read_regular(folder / ASKED, _MAX_BYTES).decode("ascii") or None
    except (OSError, UnicodeDecodeError):
        return None

"""What a client is made with: address, key, limits. The key goes into the header and nowhere else."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from nextitem.client.requests import check_names

DEFAULT_URL = "http://127.0.0.1:8000"
URL, KEY, KEY_FILE = "NEXTITEM_CLIENT_URL", "NEXTITEM_CLIENT_KEY", "NEXTITEM_CLIENT_KEY_FILE"
"""Environment variables for what is not given as an argument."""


class Options(TypedDict, total=False):
    """How a client is made, beside its address; the same for both."""

    key: str | None
    key_file: str | Path | None
    timeout_s: float
    attempt_timeout_s: float
    network_ms: float
    max_connections: int
    verify: bool | ssl.SSLContext


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, but for the last.

    `timeout_s`: all attempts of a call with their pauses; recommendations have their own `timeout_ms` instead.
    `attempt_timeout_s`: one attempt, until it counts as lost and is repeated.
    `network_ms`: what connecting and travelling may take beyond the `timeout_ms` of a recommendation.
    """

    timeout_s: float = 10.0
    attempt_timeout_s: float = 3.0
    network_ms: float = 200.0

    def __post_init__(self) -> None:
        """Raise ValueError for a limit that is none."""
        for name in self.__slots__:
            value = getattr(self, name)
            if not (0 < value < float("inf")):
                raise ValueError(f"{name} must be a number above 0")


def read_url(url: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The address, its scheme in small letters, no slash at its end. Raises ValueError, which does not quote it."""
    try:
        parts = urlsplit((url or environment.get(URL) or DEFAULT_URL).rstrip("/"))
        _ = parts.port
    except ValueError:
        raise ValueError("the service's address cannot be read: it is like https://recs.example:8000/prefix") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the service's address begins with http:// or https:// and names a host")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("the service's address has no user, password, query or fragment: a key goes into key_file")
    return parts.geturl()  # with the scheme in small letters


def read_limits(options: Options) -> Limits:
    """The limits among the options. Raises TypeError for an option that there is not, ValueError for a wrong limit."""
    check_names(options.keys(), Options)
    given: dict[str, Any] = {name: value for name, value in options.items() if name in Limits.__slots__}
    return Limits(**given)


def read_key(options: Options, environment: Mapping[str, str] = os.environ) -> str | None:
    """The key, or None: as an argument, a file, or by the environment. Raises ValueError, which does not quote it."""
    key, file = options.get("key"), options.get("key_file")
    if key is not None and file is not None:
        raise ValueError("give key or key_file, not both")
    if key is None and file is None:
        key, file = environment.get(KEY) or None, environment.get(KEY_FILE) or None
    if key is None:
        if file is None:
            return None
        try:
            key = Path(file).read_text(encoding="ascii")
        except UnicodeDecodeError:  # its message would quote the byte
            raise ValueError(f"the key file {file} does not hold a key: it has one line, nk_<id>_<secret>") from None
    key = key.strip()
    if not key or not all("!" <= character <= "~" for character in key):
        raise ValueError("the key is not one: it is printable ASCII without spaces, nk_<id>_<secret>")
    return key

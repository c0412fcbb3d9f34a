"""Checks the Host header and the page that a request comes from.

Without API keys anyone who can reach the address may read and erase. A web page in a visitor's browser can reach it,
too: by DNS rebinding, or by cross-site requests. Both are refused when there are no keys.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Self

from service.settings import Settings

ANY = "*"
_PORT = re.compile(r"(?::[0-9]{0,5})?")
_OURS = (b"same-origin", b"none")
"""Values of Sec-Fetch-Site for requests by the service's own pages or by the user."""


class AllowedHosts:
    """The allowed values of the headers Host, Origin and Sec-Fetch-*.

    localhost is always allowed. `names` are allowed, too; `*.example.com` stands for every subdomain and `*` for any
    name. `elsewhere` also allows hosts that no foreign web page can have: addresses and names without a dot.
    """

    def __init__(self, names: Sequence[str] = (ANY,), *, elsewhere: bool = True, foreign_pages: bool = True) -> None:
        self._names = frozenset({"localhost", *names})
        self._above = (".localhost", *(name.removeprefix("*") for name in names if name.startswith("*.")))
        self._elsewhere = elsewhere
        self.foreign_pages = foreign_pages
        """Whether pages of other sites may send requests."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say. With API keys any name is allowed by default, because foreign pages have no key."""
        if settings.keys_file is not None:
            return cls(settings.allowed_hosts or (ANY,))
        if settings.is_local:
            return cls(settings.allowed_hosts, elsewhere=False, foreign_pages=False)
        return cls((*settings.allowed_hosts, settings.host.lower()), foreign_pages=False)

    def allow(self, host: bytes) -> bool:
        """Whether a Host header, with or without a port, is allowed."""
        if ANY in self._names:
            return True
        name = _strip_port(host)
        if name in self._names or name.endswith(self._above):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return self._elsewhere and bool(name) and "." not in name
        return self._elsewhere or address.is_loopback

    def allow_page(self, headers: Mapping[bytes, bytes], *, reads: bool) -> bool:
        """Whether a request is allowed, given the page that sent it, if any. `reads`: the method changes nothing.

        Following a link from another site is allowed: the answer goes to the user and not to that page.
        """
        site = headers.get(b"sec-fetch-site")
        if site is not None:  # pages cannot forge it; Origin covers browsers that do not send it
            return site in _OURS or (reads and headers.get(b"sec-fetch-mode") == b"navigate")
        origin = headers.get(b"origin")
        return origin is None or origin.partition(b"://")[2].lower() == headers[b"host"].lower()


def _strip_port(host: bytes) -> str:
    """The name or address in lower case, or an empty string if it is invalid."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        name, _, port = text[1:].partition("]")
    else:
        name, colon, digits = text.partition(":")
        port = colon + digits
    return name.removesuffix(".") if _PORT.fullmatch(port) else ""

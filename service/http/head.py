"""Checks the head of a request: strict HTTP, within the limits, from an allowed host and page."""

import re
from collections.abc import Mapping, Sequence

import httptools

from service.errors import CrossSite, HeadTooLarge, HostNotAllowed, MalformedRequest, Problem
from service.http.allowed_hosts import AllowedHosts

HEAD_MAX_BYTES = 32 * 1024
HEADERS_MAX = 100

_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]{1,255}")
_ABSOLUTE = re.compile(rb"https?://[^/?#@]+(?=/)", re.IGNORECASE)
"""The absolute form of a target, as proxies send it."""
_EXAMINED = frozenset({b"host", b"transfer-encoding", b"origin", b"sec-fetch-site", b"sec-fetch-mode"})
"""Headers that decide whether a request is accepted."""
_ONCE = "Send each of Host, Transfer-Encoding, Origin and Sec-Fetch-* at most once."
_INVALID_TARGET = re.compile(rb"[^!-~]|#")
"""A byte that must be percent-encoded, or a fragment, which clients must not send."""


class HeadCheck:
    """Checks the heads of one connection, and remembers its last valid Host header."""

    __slots__ = ("_host", "_hosts")

    def __init__(self, hosts: AllowedHosts) -> None:
        self._hosts = hosts
        self._host: bytes | None = None

    def find_problem(
        self, url: bytes, headers: Sequence[tuple[bytes, bytes]], parser: httptools.HttpRequestParser
    ) -> Problem | None:
        """The problem to refuse a request with, if there is one. The headers' names are in lower case."""
        size, examined = len(url), {}
        for name, value in headers:
            size += len(name) + len(value) + 4
            if name in _EXAMINED:
                if name in examined:
                    return MalformedRequest(_ONCE)
                examined[name] = value
        if size > HEAD_MAX_BYTES or len(headers) > HEADERS_MAX:
            return HeadTooLarge()
        version = parser.get_http_version()
        is_path = url.startswith(b"/") or _ABSOLUTE.match(url) is not None
        if version not in ("1.1", "1.0") or not is_path or _INVALID_TARGET.search(url):
            return MalformedRequest()
        host = examined.get(b"host")
        if host is None or host != self._host:
            problem = self._check_host(host)
            if problem is not None:
                return problem
        return self._check_rest(examined, version, parser) if len(examined) > 1 else None

    def _check_host(self, host: bytes | None) -> Problem | None:
        if host is None:
            return MalformedRequest("Send one Host header.")
        if _HOST.fullmatch(host) is None:
            return MalformedRequest("The Host header is not valid.")
        if not self._hosts.allow(host):
            return HostNotAllowed()
        self._host = host
        return None

    def _check_rest(
        self, examined: Mapping[bytes, bytes], version: str, parser: httptools.HttpRequestParser
    ) -> Problem | None:
        encoding = examined.get(b"transfer-encoding")
        if encoding is not None and (encoding.lower() != b"chunked" or version != "1.1"):
            return MalformedRequest("The only Transfer-Encoding is chunked, in HTTP/1.1.")
        reads = parser.get_method() in (b"GET", b"HEAD")
        return None if self._hosts.foreign_pages or self._hosts.allow_page(examined, reads=reads) else CrossSite()

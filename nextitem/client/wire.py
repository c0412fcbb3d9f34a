"""Between the core and httpx: what both clients are made with, how a Send goes out and what comes back."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx

from nextitem.client.exchange import Lost, Reply, Send
from nextitem.client.settings import Options, read_key

KEEP_ALIVE_S = 30.0
"""An idle connection is closed before the service (75 s) or a proxy closes it under a request."""


def write_http_options(url: str, options: Options) -> dict[str, Any]:
    """What httpx's clients are made with. Raises ValueError or OSError for a key that cannot be read."""
    key = read_key(options)
    most = options.get("max_connections", 100)
    return {
        "headers": {
            "accept": "application/json",
            "user-agent": f"nextitem-client/{_find_version()}",
            **({"authorization": f"Bearer {key}"} if key else {}),
        },
        "limits": httpx.Limits(max_connections=most, max_keepalive_connections=most, keepalive_expiry=KEEP_ALIVE_S),
        # Reading the authorities takes 40 ms of CPU, and without TLS nobody shows a certificate.
        "verify": False if url.startswith("http://") else options.get("verify", True),
        "follow_redirects": False,  # a key goes where it was meant to go
    }


def write_request(url: str, step: Send) -> dict[str, Any]:
    """The arguments of httpx's `request`."""
    headers = {"content-type": "application/json"} if step.body is not None else None
    return {
        "method": step.method,
        "url": url + step.path,
        "content": step.body,
        "headers": headers,
        "timeout": step.timeout_s,
    }


def read_reply(answer: httpx.Response) -> Reply:
    """What came back."""
    return Reply(answer.status_code, answer.content, answer.headers.get("retry-after"))


def read_loss(error: httpx.RequestError) -> Lost:
    """What is known of an answer that did not come; of errors without a connection the reason, too."""
    name = type(error).__name__
    return Lost(error, f"{name}: {error}" if isinstance(error, httpx.ConnectError) else name)


def _find_version() -> str:
    try:
        return version("nextitem")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0"

"""Which names and pages may ask: a stranger's web page is a stranger, whatever its visitor's browser can reach."""

import json
import re
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from service.auth.key_file import create_key
from service.http.allowed_hosts import AllowedHosts
from service.settings import Settings

KEYLESS = AllowedHosts.of(Settings(bundle="b"))
NAMED = AllowedHosts.of(Settings(bundle="b", allowed_hosts="Shop.example,*.inside.example,10.0.0.7"))
OPEN = AllowedHosts.of(Settings(bundle="b", host="reco.inside.example", allow_anonymous=True))
WITH_KEYS = AllowedHosts.of(Settings(bundle="b", host="::", keys_file="k"))
NAMED_WITH_KEYS = AllowedHosts.of(Settings(bundle="b", host="::", keys_file="k", allowed_hosts="shop.example"))
EVERYBODY = {KEYLESS, NAMED, OPEN, WITH_KEYS, NAMED_WITH_KEYS}


@pytest.mark.parametrize(
    ("host", "by"),
    [
        (b"localhost", EVERYBODY),
        (b"localhost:8000", EVERYBODY),
        (b"LocalHost.:8000", EVERYBODY),
        (b"nextitem.localhost:1", EVERYBODY),
        (b"127.0.0.1", EVERYBODY),
        (b"127.1.2.3:8000", EVERYBODY),
        (b"[::1]", EVERYBODY),
        (b"[::1]:8000", EVERYBODY),
        (b"evil.example", {WITH_KEYS}),
        (b"evil.example:8000", {WITH_KEYS}),
        (b"localhost.evil.example", {WITH_KEYS}),
        (b"127.0.0.1.evil.example", {WITH_KEYS}),
        (b"evillocalhost.example", {WITH_KEYS}),
        (b"shop.example:443", {NAMED, WITH_KEYS, NAMED_WITH_KEYS}),
        (b"a.b.inside.example", {NAMED, WITH_KEYS}),
        (b"inside.example", {WITH_KEYS}),
        (b"reco.inside.example:8000", {NAMED, OPEN, WITH_KEYS}),
        (b"10.0.0.7:8000", {NAMED, OPEN, WITH_KEYS, NAMED_WITH_KEYS}),
        (b"[fd00::7]", {OPEN, WITH_KEYS, NAMED_WITH_KEYS}),
        (b"service:8000", {OPEN, WITH_KEYS, NAMED_WITH_KEYS}),
        (b"localhost:8000:9", {WITH_KEYS}),
        (b"localhost:http", {WITH_KEYS}),
        (b"[::1]evil", {WITH_KEYS}),
        (b"", {WITH_KEYS}),
    ],
)
def test_names(host, by):
    """Without keys those of this machine, elsewhere no name that a page can have; others when they are given."""
    assert {hosts for hosts in EVERYBODY if hosts.allow(host)} == by


@pytest.mark.parametrize(
    ("headers", "reads", "allowed"),
    [
        ({}, False, True),
        ({b"sec-fetch-site": b"same-origin", b"origin": b"http://localhost:8000"}, False, True),
        ({b"sec-fetch-site": b"none", b"sec-fetch-mode": b"navigate"}, True, True),
        ({b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"navigate"}, True, True),
        ({b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"navigate"}, False, False),
        ({b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"no-cors"}, True, False),
        ({b"sec-fetch-site": b"cross-site"}, False, False),
        ({b"sec-fetch-site": b"same-site", b"origin": b"http://localhost:8000"}, False, False),
        ({b"sec-fetch-site": b""}, False, False),
        ({b"origin": b"http://localhost:8000"}, False, True),
        ({b"origin": b"http://LOCALHOST:8000"}, False, True),
        ({b"origin": b"http://localhost:3000"}, False, False),
        ({b"origin": b"http://evil.example"}, True, False),
        ({b"origin": b"null"}, False, False),
    ],
)
def test_pages(headers, reads, allowed):
    """A page of ours may ask, and so may a program; one of another site may be the way here, and no more."""
    assert KEYLESS.allow_page({b"host": b"localhost:8000", **headers}, reads=reads) is allowed


@pytest.fixture(scope="module")
def keyless(start_once):
    """A service as it is started by hand."""
    return start_once("--allowed-hosts", "shop.example")


def ask(url, method, path, *, document=None, **headers):
    """Status and problem, if there is one, of a request on a connection of its own."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = httpx.request(method, f"{url}{path}", json=document, headers=named)
    is_problem = answer.headers.get("content-type") == "application/problem+json"
    return answer.status_code, answer.json()["type"].rpartition(":")[2] if is_problem else ""


def test_a_rebound_name_is_refused(keyless):
    """A page whose name leads here reads, writes and erases nothing; the name that was given does, and so do we."""
    event = {"user_id": "u", "item_id": "i01"}
    for path, method, document in (
        ("/users/u/history", "GET", None),
        ("/events", "POST", event),
        ("/users/u", "DELETE", None),
        ("/metrics", "GET", None),
        ("/health/live", "GET", None),
    ):
        refused = ask(keyless.url, method, path, document=document, host="evil.example", origin="http://evil.example")
        assert refused == (421, "host-not-allowed")
        assert ask(keyless.url, method, path, document=document, host="shop.example:80")[0] in (200, 204)
        assert ask(keyless.url, method, path, document=document)[0] in (200, 204)


def test_pages_of_other_sites_are_refused(keyless):
    """They neither write nor erase; a page of ours does."""
    event = {"user_id": "u", "item_id": "i01"}
    ours = keyless.url
    for method, path, document in (("POST", "/events", event), ("DELETE", "/users/u", None)):
        for told in ({"sec_fetch_site": "cross-site"}, {"origin": "http://evil.example"}, {"origin": "null"}):
            assert ask(ours, method, path, document=document, **told) == (403, "cross-site")
        for told in ({"sec_fetch_site": "same-origin", "origin": ours}, {"origin": ours}):
            assert ask(ours, method, path, document=document, **told)[0] in (200, 204)


def test_a_connection_is_looked_at_for_each_name(keyless):
    """A name that was allowed once does not open the connection to another."""
    url = urlsplit(keyless.url)
    with socket.create_connection((url.hostname, url.port)) as connection:
        for host in (b"localhost", b"evil.example"):
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        content = b""
        while received := connection.recv(65_536):
            content += received
    assert re.findall(rb"HTTP/1.1 (\d+)", content) == [b"200", b"421"]
    problem = json.loads(content.rpartition(b"\r\n\r\n")[2])
    assert "evil" not in str(problem)
    assert "--allowed-hosts" in problem["detail"]


def test_keys_open_to_any_name(start_process, tmp_path):
    """A container is probed and asked by its address or any name; whoever has a key may send it from a page."""
    key = create_key(tmp_path / "keys.json", ["recommend"])
    process = start_process("--host", "0.0.0.0", "--keys-file", str(tmp_path / "keys.json"))  # noqa: S104
    url = f"http://127.0.0.1:{urlsplit(process.url).port}"
    for host in ("172.18.0.5:8000", "service:8000", "reco.example"):
        assert ask(url, "GET", "/health/ready", host=host)[0] == 200
        assert ask(url, "GET", "/model", host=host)[0] == 401
        with_key = {"authorization": f"Bearer {key}", "sec_fetch_site": "cross-site", "origin": "https://shop.example"}
        assert ask(url, "GET", "/model", host=host, **with_key)[0] == 200

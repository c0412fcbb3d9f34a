"""What clients are made with: addresses, keys, limits; and that a key is seen by the service alone."""

import inspect
import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from nextitem.client import AsyncClient, Client
from nextitem.client.settings import KEY, KEY_FILE, URL, Limits, read_key, read_limits, read_url
from nextitem.client.wire import write_http_options

SECRET = "nk_id_c2VjcmV0"  # noqa: S105 - nobody's


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    """Whoever runs the tests may have a service of their own."""
    for name in (URL, KEY, KEY_FILE):
        monkeypatch.delenv(name, raising=False)


def test_both_clients_have_the_same_methods():
    """With the same arguments and answers, but for coroutines."""
    plain, awaited = (
        {name: member for name, member in vars(kind).items() if not name.startswith("_") and callable(member)}
        for kind in (Client, AsyncClient)
    )
    assert plain.keys() == awaited.keys()
    for name, method in plain.items():
        assert inspect.signature(method) == inspect.signature(awaited[name])
        assert inspect.iscoroutinefunction(awaited[name])
        assert not inspect.iscoroutinefunction(method)


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [
        (None, {}, "http://127.0.0.1:8000"),
        (None, {URL: "https://a.example/recs/"}, "https://a.example/recs"),
        ("HTTP://b:9", {}, "http://b:9"),
        ("http://b:9/", {URL: "https://a.example"}, "http://b:9"),
    ],
)
def test_the_address_is_given_or_in_the_environment(given, environment, found):
    """With or without a prefix; the argument counts more."""
    assert read_url(given, environment) == found


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://a",
        "http://",
        "http://a:x",
        "http://[a",
        f"http://user:{SECRET}@a",
        f"http://a/?key={SECRET}",
        f"http://a/#{SECRET}",
    ],
)
def test_what_is_no_address_is_refused(url):
    """And what should not stand in one, unrepeated."""
    with pytest.raises(ValueError, match="the service's address") as raised:
        Client(url)
    assert SECRET not in str(raised.value)


def test_keys_come_from_arguments_files_and_the_environment(tmp_path):
    """In this order; a file's line end does not count."""
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    assert read_key({}, {}) is None
    assert read_key({"key": SECRET}, {KEY: "other"}) == SECRET
    assert read_key({"key_file": file}, {KEY: "other"}) == SECRET
    assert read_key({}, {KEY: SECRET, KEY_FILE: "nowhere"}) == SECRET
    assert read_key({}, {KEY: "", KEY_FILE: str(file)}) == SECRET
    with pytest.raises(ValueError, match="not both"):
        read_key({"key": SECRET, "key_file": file}, {})
    with pytest.raises(OSError, match="nowhere"):
        read_key({"key_file": tmp_path / "nowhere"}, {})


@pytest.mark.parametrize("content", ["", " ", f"{SECRET} {SECRET}", f"{SECRET}\nX-Other: 1", "clé", "\0"])
def test_what_is_no_key_is_refused(tmp_path, content):
    """It could end the header; the message does not repeat it."""
    file = tmp_path / "key"
    file.write_text(content)
    for options in ({"key": content}, {"key_file": file}):
        with pytest.raises(ValueError, match="key") as raised:
            Client(**options)
        assert SECRET not in str(raised.value)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_does_not_show_its_key(kind):
    """Neither by itself nor by what it is made of."""
    client = kind("http://a", key=SECRET)
    shown = [repr(client), str(client), *map(repr, vars(client).values()), repr(client._http.headers)]
    assert repr(client) == f"{kind.__name__}('http://a')"
    assert client._http.headers["authorization"] == f"Bearer {SECRET}"
    assert not any(SECRET in each for each in shown)


def test_certificates_are_checked():
    """Wherever there is TLS, unless the caller says otherwise; by the caller's own context if there is one."""
    context = ssl.create_default_context()
    assert write_http_options("https://a", {})["verify"] is True
    assert write_http_options("https://a", {"verify": context})["verify"] is context
    assert write_http_options("https://a", {"verify": False})["verify"] is False
    assert write_http_options(read_url("HTTPS://a"), {})["verify"] is True


@pytest.mark.parametrize("wrong", [{"timeout_s": 0}, {"attempt_timeout_s": float("nan")}, {"network_ms": -1}])
def test_limits_are_above_nothing(wrong):
    """Otherwise no attempt could be made."""
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be a number above 0"):
        Client(**wrong)


def test_options_are_those_that_there_are():
    """A misspelled one is an error, and not overheard."""
    assert read_limits({"timeout_s": 3, "verify": False}) == Limits(timeout_s=3)
    with pytest.raises(TypeError, match="Options has no field 'timeout'"):
        Client(timeout=3)  # type: ignore[call-arg]  # the mistake


ALONE = """
import sys
before = [*sys.path]
import nextitem.client
rooms = {"model", "service", "training", "numpy", "pydantic"}
assert sys.path == before, "the path was changed"
assert not rooms & {name.partition(".")[0] for name in sys.modules}, "a room was imported"
"""


def test_the_client_is_imported_alone():
    """No room of ours and no numpy come with it, and the importer's own `model` is still found first."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_without_httpx_it_says_what_to_install(monkeypatch):
    """In place of the name of a module."""
    for name in [name for name in sys.modules if name.startswith("nextitem.client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'nextitem\[client\]'"):
        __import__("nextitem.client")

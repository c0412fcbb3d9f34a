"""Parts of other libraries that they do not promise: all are looked for at the start, and versions are capped."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from packaging.requirements import Requirement
from packaging.version import Version
from uvicorn import Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.auth.guard import GuardedRoute
from service.errors import StartFailed
from service.http.protocol import LimitedProtocol
from service.libraries import PARTS, check_libraries
from service.process.server import DrainingServer, WatchedServer, WorkerServer

ROOT = Path(__file__).parents[2]
SETS_ATTRIBUTES = [("prometheus-client", "_upper_bounds"), ("redis", "_writer"), ("uvicorn", "pipeline")]


def test_all_parts_are_there():
    """With the versions that are installed."""
    check_libraries()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (LimitedProtocol, HttpToolsProtocol),
        (WatchedServer, Server),
        (WorkerServer, Server),
        (DrainingServer, Server),
        (GuardedRoute, APIRoute),
    ],
)
def test_every_overridden_method_is_looked_for(ours, theirs):
    """One that is renamed there would silently never be called."""
    overridden = {name for name, part in vars(ours).items() if callable(part) and hasattr(theirs, name)}
    looked_for = {name for classes in PARTS.values() for name in classes.get(theirs, ())}
    assert overridden - {"__init__"} <= looked_for


def test_a_method_that_is_gone_is_one_sentence(monkeypatch):
    """Which names library, version and part."""
    monkeypatch.delattr(HttpToolsProtocol, "on_message_complete")
    with pytest.raises(
        StartFailed, match=rf"uvicorn {re.escape(version('uvicorn'))} has no HttpToolsProtocol\.on_mess"
    ):
        check_libraries()


@pytest.mark.parametrize(("library", "name"), SETS_ATTRIBUTES)
def test_an_attribute_that_is_gone_is_one_sentence(monkeypatch, library, name):
    """Attributes that no method sets any more are missed, too."""
    kind = next(kind for kind, names in PARTS[library].items() if name in names)
    check_libraries()
    monkeypatch.setitem(PARTS[library], kind, (f"{name}_renamed",))
    with pytest.raises(StartFailed, match=f"{library} .* has no {kind.__name__}.{name}_renamed"):
        check_libraries()


def test_their_versions_are_capped_at_the_tested_minor():
    """What is pinned may be installed, and the next minor may not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {each.name: each for each in map(Requirement, project["optional-dependencies"]["serving"])}
    pins = dict(re.findall(r"^([A-Za-z_-]+)==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    for library in PARTS:
        pinned = Version(pins[library.replace("-", "_")])
        assert asked[library].specifier.contains(pinned)
        assert not asked[library].specifier.contains(f"{pinned.major}.{pinned.minor + 1}.0")
        assert not asked[library].specifier.contains(f"{pinned.major + 1}.0")

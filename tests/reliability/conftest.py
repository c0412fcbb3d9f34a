"""What goes wrong on purpose: a store whose connections, process and power fail, and a service that goes on over it."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.harness.powercut import build_library
from service.embedded.server import EmbeddedStore
from service.embedded.valkey import find_binary

BUNDLE = Path(__file__).parents[1] / "serving" / "bundle"


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="faults-") as path:
        yield Path(path)


@pytest.fixture
def store(folder: Path) -> Iterator[EmbeddedStore]:
    """A store of the test's own."""
    with EmbeddedStore(folder / "data") as store:
        yield store


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, require_tool: Callable[[str], str]) -> Path:
    """What is preloaded into a store that is to lose its power."""
    return build_library(tmp_path_factory.mktemp("powercut"), compiler=require_tool("gcc"))


@pytest.fixture(params=["valkey-server", "redis-server"])
def binary(request: pytest.FixtureRequest, require_tool: Callable[[str], str]) -> Path:
    """The servers that a test runs over: the embedded Valkey and a Redis from PATH."""
    return find_binary() if request.param == "valkey-server" else Path(require_tool(request.param))


@pytest.fixture(scope="session")
def bundle() -> Path:
    """The tiny bundle."""
    return BUNDLE

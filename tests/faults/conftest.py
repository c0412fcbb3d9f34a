"""What goes wrong on purpose: a store whose sockets, process and disk fail."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.embedded import EmbeddedStore


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

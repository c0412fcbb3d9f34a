"""A bundle folder with versions whose graphs are never run."""

import pytest

from benchmarks.harness.plain_versions import write_version


@pytest.fixture
def root(tmp_path):
    """A bundle folder with the versions v1 to v4, none of which is in use."""
    for number in range(1, 5):
        write_version(tmp_path, f"v{number}")
    return tmp_path

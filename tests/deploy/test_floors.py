"""The floors of versions: kept by what is pinned and installed, and noticed when they are not."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from deploy.floors import BANNED, CONSTRAINTS, FLOORS, find_faults, main, read_constraints

EXTRAS = tomllib.loads((CONSTRAINTS.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_floors_are_kept(capsys):
    """Here and now."""
    assert (main(), capsys.readouterr().out) == (0, f"{len(FLOORS)} floors, all kept\n")


@pytest.mark.parametrize("name", FLOORS)
def test_versions_below_are_found(name):
    """One below is named with its reason; the floor itself passes, and so does 10 after 9."""
    floor, why = FLOORS[name]
    for below in (f"{floor}rc1", "0.0.9"):
        assert find_faults({name: below}, "here") == [f"here: {name} {below} is below {floor} ({why})"]
    for kept in (floor, f"{floor}.post1", "1000.0"):
        assert find_faults({name: kept}, "here") == []


@pytest.mark.parametrize("name", BANNED)
def test_banned_packages_are_found(name):
    """Whatever their version."""
    assert find_faults({name: "99.0"}, "here") == [f"here: {name} must not be there ({BANNED[name]})"]


def test_names_are_compared_as_pypi_does():
    """However a package is spelled in the list."""
    assert read_constraints("# a\nPython_Multipart==0.0.1\n") == {"python-multipart": "0.0.1"}


def test_what_may_be_installed_keeps_the_floors():
    """The least versions that pyproject.toml asks for are none with a known hole."""
    wanted = [Requirement(line) for extra in EXTRAS.values() for line in extra]
    least = {
        requirement.name: max(Version(clause.version) for clause in requirement.specifier)
        for requirement in wanted
        if re.search(">=|==", str(requirement.specifier))
    }
    assert {name: str(version) for name, version in least.items() if find_faults({name: str(version)}, "x")} == {}
    assert Path(CONSTRAINTS).exists()

"""docs/reference/library-internals.md and service/libraries.py name the same parts, and the page real files."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from service.libraries import PARTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "library-internals.md").read_text()


def read_sections():
    """Each library's cap and its rows: class, parts, users, purpose, tests, way out."""
    found = {}
    for section in re.split(r"(?m)^## ", PAGE)[1:]:
        [(library, cap)] = re.findall(r"\A(\S+) `(.+)`\n", section)
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
        found[library] = (cap, rows)
    return found


SECTIONS = read_sections()


def test_every_library_has_a_section():
    """And no other has."""
    assert SECTIONS.keys() == PARTS.keys()


@pytest.mark.parametrize("library", PARTS)
def test_its_parts_are_those_that_are_looked_for(library):
    """By class and name, in the same order."""
    _, rows = SECTIONS[library]
    told = {row[0].strip("`"): tuple(re.findall(r"`(\w+)`", row[1])) for row in rows}
    assert told == {kind.__name__: names for kind, names in PARTS[library].items()}


@pytest.mark.parametrize("library", PARTS)
def test_its_cap_is_the_projects(library):
    """As pip reads it."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["serving"]
    asked = {each.name: each.specifier for each in map(Requirement, extra)}
    assert Requirement(library + SECTIONS[library][0]).specifier == asked[library]


@pytest.mark.parametrize("library", PARTS)
def test_where_it_is_used_and_noticed_is_there(library):
    """The files that use a class name one of its parts; the tests exist, and there is a way out."""
    for _, parts, users, purpose, tests, way_out in SECTIONS[library][1]:
        files, noticed = (re.findall(r"`([\w/]+\.py)`", cell) for cell in (users, tests))
        assert files
        assert noticed
        assert purpose
        assert way_out
        assert all((ROOT / path).is_file() for path in noticed)
        names = re.findall(r"`(\w+)`", parts)
        assert all(any(name in (ROOT / path).read_text() for name in names) for path in files)

"""CHANGELOG.md and the project's version agree, and every version says the same kinds of things."""

import re
import tomllib
from datetime import date
from itertools import pairwise
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CHANGELOG.md").read_text()
HEADING = re.compile(r"^(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$")
SECTIONS = ["Added", "Changed", "Fixed", "Upgrade"]


def list_versions():
    """Each version with its date and its text, the newest first; what is unreleased stands before."""
    unreleased, *parts = re.split(r"(?m)^## ", PAGE)[1:]
    assert unreleased.startswith("Unreleased\n")
    found = []
    for part in parts:
        heading, text = part.split("\n", 1)
        matched = HEADING.match(heading)
        assert matched, heading
        found.append((Version(matched[1]), date.fromisoformat(matched[2]), text))
    return found


def test_the_newest_version_is_the_projects():
    """What `pip` shows is what the changelog tells of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert str(list_versions()[0][0]) == project["version"]


def test_versions_and_dates_fall():
    """The newest stands first."""
    for (newer, newer_day, _), (older, older_day, _) in pairwise(list_versions()):
        assert newer > older
        assert newer_day >= older_day


def test_sections_are_of_four_kinds_in_their_order():
    """Added, Changed, Fixed, Upgrade; none is empty."""
    for version, _, text in list_versions():
        names = re.findall(r"(?m)^### (.+)$", text)
        assert names, version
        assert names == [name for name in SECTIONS if name in names]
        assert all(re.search(r"(?m)^- ", section) for section in re.split(r"(?m)^### ", text)[1:])

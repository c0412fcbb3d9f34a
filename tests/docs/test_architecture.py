"""docs/architecture.md and its picture name every room that there is, and none that there is not."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
HOUSES = ("service", "training", "model")


def list_rooms(house):
    """The folders and files of a house."""
    rooms = {path.name for path in (ROOT / house).iterdir() if (path / "__init__.py").exists()}
    return rooms | {path.name for path in (ROOT / house).glob("*.py")} - {"__init__.py"}


def read_layers(house):
    """The rooms of a house in the layers that `make check` holds."""
    [layers] = [
        contract["layers"]
        for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == [house]
    ]
    return [line.split(" | ") for line in layers]


@pytest.mark.parametrize("house", [*HOUSES, "benchmarks", "nextitem"])
def test_every_room_has_a_line(house):
    """In the table of its house, each once."""
    section = PAGE.split(f"\n### {house}: ")[1].split("\n### ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = [name.split("/")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell) if "*" not in name]
    assert set(named) == list_rooms(house) | ({"results"} if house == "benchmarks" else set())


def test_the_picture_shows_the_layers():
    """Each house's rooms from top to bottom, those that do not know each other side by side."""
    picture = (ROOT / "docs" / "rooms.svg").read_text()
    shown = [name.removesuffix(".py") for name in re.findall(r'class="name"[^>]*>([^<]+)<', picture)]
    for house in HOUSES:
        layers = read_layers(house)
        names = {name for layer in layers for name in layer}
        assert names == {name.removesuffix(".py") for name in list_rooms(house)}
    assert shown == [name for house in HOUSES for layer in read_layers(house) for name in layer]

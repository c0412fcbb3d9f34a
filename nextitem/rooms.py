"""How `service`, `training` and `model` are found: by a command of ours, or by somebody else's program."""

import importlib
import sys
from pathlib import Path

_ROOMS = Path(__file__).with_name("_rooms")


def open_rooms() -> None:
    """Have them found by a command, for good: who imports the client may have their own."""
    if _ROOMS.is_dir():
        sys.path.insert(0, str(_ROOMS))  # first: a foreign `model` in the environment is not ours


def import_rooms(*names: str) -> None:
    """Import rooms for a program that is not ours, and leave its path as it was (docs/decisions/0042).

    Raises ImportError where the program has imported another package of such a name.
    """
    home = _ROOMS if _ROOMS.is_dir() else _ROOMS.parents[1]
    sys.path.insert(0, str(home))
    try:
        for name in names:
            found = Path(str(importlib.import_module(name).__file__))
            if not found.is_file() or not found.parent.samefile(home / name):
                raise ImportError(
                    f"nextitem.training needs a package called {name!r} of its own, and this program has imported "
                    f"another one of that name: {found}. Use nextitem.training in a process that has not",
                    name=name,
                )
    finally:
        sys.path.remove(str(home))

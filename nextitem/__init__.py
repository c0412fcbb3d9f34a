"""The two commands of an installed package (docs/decisions/0014), beside them the client (0025) and notebooks (0042).

A wheel keeps `service`, `training` and `model` in `nextitem/_rooms`, where they meet no package of the same name. In a
repository they lie beside this folder, and nothing is done.
"""

import importlib
import sys
from pathlib import Path


def serve() -> int:
    """`nextitem-serve`. Returns the exit status."""
    _open_rooms()
    from service.entry import main  # noqa: PLC0415 - found only now

    return main()


def train() -> int:
    """`nextitem-train`. Returns the exit status."""
    _open_rooms()
    from training.cli import main  # noqa: PLC0415 - found only now

    return main()


def _open_rooms() -> None:
    """Have `service`, `training` and `model` found, by a command alone: who imports the client may have their own."""
    rooms = Path(__file__).with_name("_rooms")
    if rooms.is_dir():
        sys.path.insert(0, str(rooms))  # first: a foreign `model` in the environment is not ours


def open_rooms_once(*names: str) -> None:
    """Import rooms by name for a program that is not ours, and leave its path as it was. For nextitem.training.

    Raises ImportError where the program has imported another package of such a name.
    """
    rooms = Path(__file__).with_name("_rooms")
    home = rooms if rooms.is_dir() else Path(__file__).parents[1]
    sys.path.insert(0, str(home))
    try:
        for name in names:
            found = Path(str(importlib.import_module(name).__file__)).resolve()
            if home.resolve() not in found.parents:
                raise ImportError(
                    f"nextitem.training needs a package called {name!r} of its own, and this program has imported "
                    f"another one of that name: {found}. Use nextitem.training in a process that has not",
                    name=name,
                )
    finally:
        sys.path.remove(str(home))

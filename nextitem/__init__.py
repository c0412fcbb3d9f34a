"""The two commands of an installed package (docs/decisions/0014), and beside them the client (docs/decisions/0025).

A wheel keeps `service`, `training` and `model` in `nextitem/_rooms`, where they meet no package of the same name. In a
repository they lie beside this folder, and nothing is done.
"""

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

"""The two commands of an installed package (docs/decisions/0014).

A wheel keeps `service`, `training` and `model` in `nextitem/_rooms`, where they meet no package of the same name. In a
repository they lie beside this folder, and nothing is done.
"""

import sys
from pathlib import Path

_ROOMS = Path(__file__).with_name("_rooms")
if _ROOMS.is_dir():
    sys.path.insert(0, str(_ROOMS))  # first: a foreign `model` in the environment is not ours


def serve() -> int:
    """`nextitem-serve`. Returns the exit status."""
    from service.entry import main  # noqa: PLC0415 - found only now

    return main()


def train() -> int:
    """`nextitem-train`. Returns the exit status."""
    from training.cli import main  # noqa: PLC0415 - found only now

    return main()

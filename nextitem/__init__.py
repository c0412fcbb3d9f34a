"""The two commands of an installed package (docs/decisions/0014), beside them the client (0025) and notebooks (0042).

A wheel keeps `service`, `training` and `model` in `nextitem/_rooms`, where they meet no package of the same name. In a
repository they lie beside this folder, and nothing is done.
"""

from nextitem.rooms import open_rooms


def serve() -> int:
    """`nextitem-serve`. Returns the exit status."""
    open_rooms()
    from service.entry import main  # noqa: PLC0415 - found only now

    return main()


def train() -> int:
    """`nextitem-train`. Returns the exit status."""
    open_rooms()
    from training.cli import main  # noqa: PLC0415 - found only now

    return main()

"""A folder that stands for the best of the runs in it: `fit` without a recipe leaves one (training/auto)."""

from pathlib import Path

from training.errors import RunError
from training.runs.documents import parse

RECORD = "auto.json"
WINNER = "winner"
"""The key of the record that names the folder of the best run."""


def find_chosen(path: Path) -> Path:
    """The run that a folder stands for: itself, or the one that its record names. Raises RunError."""
    record = path / RECORD
    if not record.is_file():
        return path
    try:
        name = parse(record.read_text()).get(WINNER)
    except (OSError, AttributeError, ValueError) as error:
        raise RunError(f"{record} is not what fit writes: {error}") from error
    if name is None:
        raise RunError(f"{path} is not finished: continue it with `nextitem-train fit ... --resume`")
    if not isinstance(name, str) or Path(name).name != name:
        raise RunError(f"{record} is not what fit writes: its winner is no folder in it")
    return path / name

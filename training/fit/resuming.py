"""Whether a run may begin in a folder, or go on there."""

from pathlib import Path

from training.data.interactions import Log
from training.errors import RunError
from training.recipe import Recipe
from training.runs.lock import FIT
from training.runs.run import Run

LENGTH = ("train.epochs", "train.budget_seconds")
"""What may be another one when a run is resumed; the learning rate goes on as if it had been so from the start."""


def check_folder(run: Run, *, resume: bool) -> None:
    """Refuse a folder that holds anything, or a run that is not to go on. Raises RunError."""
    if run.exists and not resume:
        raise RunError(f"{run.path} already holds a run: continue it with --resume, or choose another --out")
    if not run.exists and not resume and run.path.exists() and (not run.path.is_dir() or _holds_files(run.path)):
        raise RunError(f"{run.path} is not empty: choose another --out")


def _holds_files(folder: Path) -> bool:
    return any(path.name != FIT for path in folder.iterdir())  # it is left by a training that could not begin


def check_same(run: Run, recipe: Recipe, log: Log) -> bool:
    """Refuse to go on with another recipe or log than the run began with. True where only its length is another one."""
    if log.fingerprint != run.config["data"]["fingerprint"]:
        raise RunError(f"{run.path} was started on another log: --resume needs the same --data")
    begun, now = run.recipe.to_dict(), recipe.to_dict()
    for section, entries in now.items():
        for key, value in entries.items():
            if begun[section][key] != value and f"{section}.{key}" not in LENGTH:
                raise RunError(
                    f"{run.path} was started with {section}.{key} = {begun[section][key]!r}, not {value!r}: "
                    f"--resume needs the same recipe, except {' and '.join(LENGTH)}"
                )
    return begun != now

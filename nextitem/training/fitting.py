"""`fit`: a log and a recipe -> a run, as `nextitem-train fit` makes it."""

import os
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

from nextitem.training import recipes
from nextitem.training.frames import Data, DataFile, ItemsFile
from nextitem.training.run import FittedRun
from training.arguments.names import MINUTES
from training.auto.automatic_fit import Order, fit_automatically
from training.auto.clock import Clock
from training.errors import InputError
from training.fit import fit as fitting
from training.fit.interrupt import Interrupt
from training.runs.run import Run

FOLDER = Path("runs")


def fit(
    data: Data,
    recipe: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    minutes: float | None = None,
    out: str | os.PathLike[str] | None = None,
    items: Data | None = None,
    settings: Mapping[str, object] | None = None,
    resume: bool = False,
) -> FittedRun:
    """Train a model and measure it beside simple counters.

    `data` has columns of users, items and times under any usual names; else `settings` name them. `recipe` is a shipped
    one by name, the path of a TOML file, or {section: {key: value}} (docs/reference/recipes.md); `settings` go over it:
    {"train.epochs": 5}. Without a recipe it is chosen by the log, within about `minutes`. The run is kept in the folder
    `out`, by default a new one under runs/. `items` is metadata: a frame with a column of items, or a file. Raises
    InputError for what cannot be used.

    A notebook's stop button saves and raises KeyboardInterrupt; the same call with that `out` and resume=True goes on.
    """
    if recipe is not None and minutes is not None:
        raise InputError("minutes are for fit without a recipe; a recipe has train.budget_seconds, for training alone")
    made = None if recipe is None else recipes.make(recipe, settings)
    folder = _name_folder("auto" if made is None else made.name) if out is None else Path(out)
    file, known = DataFile(data), None if items is None else ItemsFile(items)
    metadata = None if known is None else known.path
    # Signals reach the main thread alone, where notebooks run their cells.
    watch: AbstractContextManager[Interrupt | None]
    watch = Interrupt() if threading.current_thread() is threading.main_thread() else nullcontext()
    with watch as interrupt:
        stop = interrupt.is_asked if interrupt else _never
        if made is None:
            order = Order(
                data=file.path,
                out=folder,
                items=metadata,
                settings=tuple(recipes.write_settings(settings)),
                clock=Clock(60 * (minutes or MINUTES)),
                resume=resume,
            )
            finished = fit_automatically(order, _say, stop) is not None
        else:
            results = fitting.fit(made, file.path, folder, resume=resume, items=metadata, stop=stop, report=True)
            finished = results is not None
    if not finished:
        raise KeyboardInterrupt(f"saved in {folder}: the same call with out={str(folder)!r}, resume=True goes on")
    return FittedRun(Run.open(folder), file)


def open_run(path: str | os.PathLike[str], data: Data | None = None) -> FittedRun:
    """A run that lies in a folder, finished or not. `data` is its log, for what needs it. Raises InputError."""
    return FittedRun(Run.open(Path(path)), None if data is None else DataFile(data))


def _name_folder(name: str) -> Path:
    """A new folder under runs/: with a number behind its name from the second one on."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(folder for name in names if not (folder := FOLDER / name).exists())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _never() -> bool:
    return False

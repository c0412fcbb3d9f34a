"""Train, measure and publish from Python, as `nextitem-train` does: `pip install 'nextitem[training]'`.

    from nextitem.training import fit

    run = fit(events, "sasrec-ml-1m", settings={"train.epochs": 5})  # a frame or the path of a log
    run.metrics
    run.recommend(["u1", "u2"], k=5)

docs/how-to/notebooks.md shows more. Importing this takes the top-level names `model` and `training` of the program
(docs/decisions/0042).
"""

from importlib.util import find_spec

from nextitem.rooms import import_rooms

for _package in ("torch", "polars"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(
            f"nextitem.training needs {_package}, which is not installed here: pip install 'nextitem[training]'",
            name=_package,
        )
import_rooms("model", "training")

from nextitem.training.evaluating import Evaluation, evaluate  # noqa: E402 - the rooms have to be found first
from nextitem.training.fitting import fit, open_run  # noqa: E402
from nextitem.training.frames import Data  # noqa: E402
from nextitem.training.run import FittedRun  # noqa: E402
from training.errors import InputError, TrainingError  # noqa: E402

__all__ = ["Data", "Evaluation", "FittedRun", "InputError", "TrainingError", "evaluate", "fit", "open_run"]

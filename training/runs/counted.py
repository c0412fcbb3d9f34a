"""What the run of a counter keeps for a bundle: its counts of the whole log, test events too.

The run was measured on counts of the training events alone. To count the newest ones as well costs nothing, and
popularity of the last days or the rules of new items are worth little without them (docs/decisions/0035).
"""

from model.contract.atomic_files import write_whole
from model.contract.counted import Counted
from training.baselines.servable import count_for_service
from training.data.interactions import Log
from training.errors import RunError
from training.recipe_models import BaselineRecipe, SessionNeighboursRecipe
from training.runs.run import Run

FILE = "counted.npy"


def keep_counted(run: Run, log: Log) -> None:
    """Count the log and write what `load_counted` reads; nothing for a model that no bundle holds."""
    model = run.recipe.model
    assert isinstance(model, BaselineRecipe)  # noqa: S101 - who calls has looked
    counted = count_for_service(model, log.histories, len(log.vocabulary), log.timestamps_ms)
    if counted is not None:
        write_whole(run.path / FILE, counted.to_bytes())


def load_counted(run: Run) -> Counted:
    """What a finished run of a counter kept. Raises RunError where there is nothing that a bundle can hold."""
    if isinstance(run.recipe.model, SessionNeighboursRecipe):
        raise RunError(
            f"{run.path}: session-knn compares whole histories, which no graph of counts can. Publish another model "
            'with --neighbours LOG: it answers requests that ask for "ranker": "neighbours", and while that model fails'
        )
    if not (run.path / FILE).is_file():
        raise RunError(f"{run.path} was made before counters could be published: fit it again")
    with run.reading(FILE):
        return Counted.from_bytes((run.path / FILE).read_bytes(), len(run.vocabulary))

"""Which trackers a training has. Their libraries are imported here, and only for the options that want them."""

from collections.abc import Callable

from training.runs.progress import RunTracker
from training.runs.run import Run


def choose_trackers(*, tensorboard: bool, mlflow: str | None) -> list[Callable[[Run], RunTracker]]:
    """What opens each tracker for a run. Raises ModuleNotFoundError where its library is not installed."""
    opens: list[Callable[[Run], RunTracker]] = []
    if tensorboard:
        from training.tracking.tensorboard_events import TensorBoardTracker  # noqa: PLC0415 - imports tensorboard

        opens.append(TensorBoardTracker)
    if mlflow is not None:
        from training.tracking.mlflow_run import MlflowTracker  # noqa: PLC0415 - imports mlflow

        opens.append(lambda run: MlflowTracker(mlflow, run))
    return opens

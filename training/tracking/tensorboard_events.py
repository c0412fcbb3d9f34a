"""TensorBoard: event files in RUN/tensorboard, scalars by the number of updates."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from training.evaluation.metrics import PRIMARY_METRIC
from training.runs.progress import Epoch, Progress
from training.runs.run import Run
from training.tracking.metrics import Numbers, list_epoch, list_parameters, list_results

FOLDER = "tensorboard"
_FLUSH_SECONDS = 10


class TensorBoardTracker:
    """Writes what a training tells. A run that goes on hides what was written of steps after its checkpoint."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._writer: SummaryWriter | None = None
        self._updates = 0

    def __enter__(self) -> "TensorBoardTracker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def note_step(self, progress: Progress, loss: float) -> None:
        self._write({"train/loss": loss}, progress.updates)

    def note_epoch(self, epoch: Epoch, progress: Progress) -> None:
        self._write(list_epoch(epoch), progress.updates)

    def note_results(self, results: Mapping[str, Any]) -> None:
        self._write(list_results(results, self._run.recipe.name), self._updates)

    def _write(self, numbers: Numbers, updates: int) -> None:
        if self._writer is None:
            self._writer = self._begin(updates)
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, updates)
        self._updates = updates

    def _begin(self, updates: int) -> SummaryWriter:
        """A new file, from which on older events of this and later updates no longer count."""
        writer = SummaryWriter(str(self._run.path / FOLDER), purge_step=updates, flush_secs=_FLUSH_SECONDS)
        parameters = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in list_parameters(self._run.recipe).items()
            if value is not None
        }
        # What add_hparams writes, but into this very file instead of a run of its own beside it.
        found = hparams(parameters, {f"validation/{PRIMARY_METRIC}": 0.0})  # type: ignore[no-untyped-call]
        assert writer.file_writer is not None  # noqa: S101 - it is, until the writer is closed
        for summary in found:
            writer.file_writer.add_summary(summary)
        return writer

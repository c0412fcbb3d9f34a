"""Progress output of a run: a live bar on a terminal, otherwise a plain line every 15 s."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from training.evaluation.metrics import PRIMARY_METRIC
from training.recipe import TrainRecipe
from training.runs.progress import Epoch
from training.runs.progress import Progress as State

_PLAIN_EVERY_SECONDS = 15.0


class Display:
    """Shows epoch, loss, validation and the time left at most, on stderr."""

    def __init__(self, recipe: TrainRecipe, steps: int) -> None:
        self._recipe = recipe
        self._updates = recipe.epochs * steps
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._said = float("-inf")
        self._last = ""

    def __enter__(self) -> "Display":
        if self._console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(), BarColumn(), TextColumn("{task.description}"), console=self._console, transient=True
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=1.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note_step(self, state: State, loss: float) -> None:
        """Take the loss so far in the epoch under way."""
        if self._bar is not None:
            text = f"epoch {state.epoch + 1}/{self._recipe.epochs}  loss {loss:.3f}{self._last}  {self._left(state)}"
            self._bar.update(self._task, completed=self._share(state), description=text)

    def note_epoch(self, epoch: Epoch, state: State) -> None:
        if epoch.validation:
            self._last = f"  {PRIMARY_METRIC} {epoch.validation[PRIMARY_METRIC]:.4f} (best {state.best:.4f})"
        if self._bar is not None:
            self.note_step(state, epoch.loss)
        elif state.finished or time.monotonic() - self._said >= _PLAIN_EVERY_SECONDS:
            self._said = time.monotonic()
            head = f"epoch {epoch.epoch}/{self._recipe.epochs}  loss {epoch.loss:.3f}{self._last}"
            self._console.print(
                head, f" {epoch.tokens_per_second:,.0f} tokens/s ", self._left(state), highlight=False, soft_wrap=True
            )

    def _share(self, state: State) -> float:
        share = state.updates / self._updates
        if self._recipe.budget_seconds is not None:
            share = max(share, state.seconds / self._recipe.budget_seconds)
        return min(1.0, share)

    def _left(self, state: State) -> str:
        share = self._share(state)
        if state.finished or not share:
            return state.finished
        left = int(state.seconds * (1 - share) / share)
        return f"{left // 60}:{left % 60:02d} left (at most)"


def say_minutes(seconds: float) -> str:
    """A time as people say it: seconds below two minutes, then minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

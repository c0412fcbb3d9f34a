"""The loop: epochs of batches, validation after each, weights kept, a state that can be resumed."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from model.nets.network import Network
from training.environment import choose_bfloat16
from training.errors import Diverged
from training.evaluation.metrics import PRIMARY_METRIC
from training.fit.batches import Batch, Samples
from training.fit.distributed import ALONE, Processes
from training.fit.losses import measure_loss
from training.fit.optimizer import schedule_rate
from training.recipe import TrainRecipe
from training.runs.progress import Epoch, Progress


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Callbacks of the loop, all called between two steps."""

    on_step: Callable[[Progress, float], None]
    """The progress and the loss so far in this epoch, about once a second."""
    on_epoch: Callable[[Epoch, Progress], None]
    keep: Callable[[], None]
    save: Callable[[Progress], None]
    stop: Callable[[], bool]


SILENT = Watcher(
    on_step=lambda *_: None,
    on_epoch=lambda *_: None,
    keep=lambda: None,
    save=lambda _: None,
    stop=lambda: False,
)
"""For the other processes of data parallel training."""


def train(
    network: Network,
    optimizer: torch.optim.Optimizer,
    *,
    samples: Samples,
    validate: Callable[[], Mapping[str, float]] | None,
    recipe: TrainRecipe,
    progress: Progress,
    watcher: Watcher,
    processes: Processes = ALONE,
) -> None:
    """Train until the epochs, the patience or the budget end, or until `watcher.stop` returns true.

    Without `validate` no epoch is better than another: training ends with the epochs or the budget. Changes network,
    optimizer and progress; `progress.finished` stays empty after a stop. Raises Diverged. Of several processes the
    first one validates, and only its watcher is called.
    """
    device = network.item_bias.device
    total = torch.tensor(progress.epoch_loss, dtype=torch.float64, device=device)
    updates = recipe.epochs * samples.steps
    clock = _Clock(progress)
    rate = recipe.learning_rate
    while not progress.finished:
        plan = samples.plan_epoch(progress.epoch)
        while progress.step < len(plan) and not _is_spent(recipe, progress):
            rate = schedule_rate(recipe, update=progress.updates, updates=updates, seconds=progress.seconds)
            batch = samples.make_batch(plan[progress.step], progress.epoch, progress.step)
            _seed_dropout(recipe.seed, progress, processes.rank)
            network.train()
            optimizer.zero_grad(set_to_none=True)
            loss = _differentiate(network, batch.share(processes.rank, processes.world), len(batch.targets), recipe)
            total += processes.add_up(network.parameters(), loss)
            nn.utils.clip_grad_norm_(network.parameters(), recipe.clip_norm)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            progress.step += 1
            progress.updates += 1
            progress.epoch_places += len(batch.targets)
            progress.epoch_tokens += int(batch.input.lengths.sum())
            if clock.tick():
                progress.epoch_loss = total.item()
                watcher.on_step(progress, progress.epoch_loss / progress.epoch_places)
            stop, progress.seconds = processes.agree(watcher.stop(), progress.seconds)
            if stop:
                progress.epoch_loss = total.item()
                watcher.save(progress)
                return
        progress.epoch_loss = total.item()
        _finish_epoch(
            validate=validate,
            recipe=recipe,
            progress=progress,
            watcher=watcher,
            rate=rate,
            clock=clock,
            processes=processes,
        )
        total.zero_()


def _seed_dropout(seed: int, progress: Progress, rank: int) -> None:
    """Begin torch's stream of this very step, so that a resumed run needs no generator's state."""
    words = np.random.SeedSequence([seed, progress.epoch, progress.step, rank]).generate_state(1)
    torch.manual_seed(int(words[0]))


def _differentiate(network: Network, batch: Batch, positions: int, recipe: TrainRecipe) -> Tensor:
    """Set the gradients of one rank's part of a batch with so many places in all. Returns the sum of its losses."""
    device = network.item_bias.device
    if not len(batch.targets):
        return torch.zeros((), device=device)
    with torch.autocast(device.type, torch.bfloat16, enabled=choose_bfloat16(recipe.precision, device)):
        loss = measure_loss(network, batch, device, recipe)
    (loss / positions).backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
    return loss.detach()


def _finish_epoch(
    *,
    validate: Callable[[], Mapping[str, float]] | None,
    recipe: TrainRecipe,
    progress: Progress,
    watcher: Watcher,
    rate: float,
    clock: "_Clock",
    processes: Processes,
) -> None:
    if not math.isfinite(progress.epoch_loss):
        raise Diverged(f"the loss is not a number in epoch {progress.epoch + 1}: lower train.learning_rate")
    trained_seconds = progress.epoch_seconds
    validation = processes.broadcast(validate) if validate is not None else {}
    clock.tick()
    _, progress.seconds = processes.agree(stop=False, seconds=progress.seconds)
    progress.epoch += 1
    if not validation:
        progress.stale = 0
    elif validation[PRIMARY_METRIC] > progress.best:
        progress.best, progress.stale = validation[PRIMARY_METRIC], 0
    else:
        progress.stale += 1
    if recipe.keep == "last" or not progress.stale:
        progress.kept_epoch = progress.epoch
        watcher.keep()
    record = Epoch(
        epoch=progress.epoch,
        loss=progress.epoch_loss / max(1, progress.epoch_places),
        learning_rate=rate,
        seconds=progress.epoch_seconds,
        tokens_per_second=progress.epoch_tokens / max(trained_seconds, 1e-9),
        validation=validation,
    )
    progress.finished = find_end(recipe, progress)
    progress.step = progress.epoch_places = progress.epoch_tokens = 0
    progress.epoch_loss = progress.epoch_seconds = 0.0
    watcher.on_epoch(record, progress)
    watcher.save(progress)


def find_end(recipe: TrainRecipe, progress: Progress) -> str:
    """Why a run ends with the epoch that it has just completed, or nothing where it goes on."""
    if progress.epoch >= recipe.epochs:
        return f"all {recipe.epochs} epochs done"
    if progress.stale >= recipe.patience:
        return f"no better {PRIMARY_METRIC} for {recipe.patience} epochs"
    if _is_spent(recipe, progress):
        return f"the budget of {recipe.budget_seconds:g} s is spent"
    return ""


def _is_spent(recipe: TrainRecipe, progress: Progress) -> bool:
    return recipe.budget_seconds is not None and progress.seconds >= recipe.budget_seconds


class _Clock:
    """Adds the time that passes to a progress, that of earlier parts of a resumed run being in it already."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last = self._told = time.monotonic()
        self._last_cpu = time.process_time()

    def tick(self) -> bool:
        """Take note of the time; true about once a second."""
        now, cpu = time.monotonic(), time.process_time()
        self._progress.cpu_seconds += cpu - self._last_cpu
        self._progress.seconds += now - self._last
        self._progress.epoch_seconds += now - self._last
        self._last, self._last_cpu = now, cpu
        if now - self._told < 1:
            return False
        self._told = now
        return True

"""One trial: a run without a test, in a folder of its own; or a count-based baseline, counted and asked once."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training.baselines.catalogue import make_baseline
from training.data.event_features import learn_event_features
from training.data.interactions import Log
from training.data.item_features import Metadata, learn_columns
from training.data.split import Split
from training.errors import Diverged
from training.evaluation.metrics import PRIMARY_METRIC, average
from training.evaluation.ranking import evaluate
from training.evaluation.results import SHOWN
from training.fit.fit import check_device, train_run
from training.recipe import Recipe
from training.recipe_models import BaselineRecipe
from training.runs.progress import Epoch, Progress
from training.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What all trials of a sweep share: the log, its split, what is known of items."""

    data: Path
    log: Log
    split: Split
    metadata: Metadata | None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trial ended: `value` is None where it was pruned or failed."""

    value: float | None
    details: dict[str, Any]


class _Pruner:
    """Watches a training, and asks after each epoch whether it is worth going on with."""

    def __init__(self, report: Callable[[int, float], bool]) -> None:
        self._report = report
        self.asked = False

    def note_step(self, progress: Progress, loss: float) -> None:
        """Nothing is decided between two epochs."""

    def note_epoch(self, epoch: Epoch, progress: Progress) -> None:
        self.asked = self._report(epoch.epoch, epoch.validation[PRIMARY_METRIC]) and not progress.finished


def run_trial(
    recipe: Recipe,
    folder: Path,
    ground: Ground,
    *,
    report: Callable[[int, float], bool],
    stop: Callable[[], bool],
) -> Outcome | None:
    """Train by a recipe into a folder, or go on with what is there, and validate. None after a stop.

    `report` takes each epoch, counted from 1, and its NDCG@10, and says whether to prune the trial. No test event is
    read.
    """
    if isinstance(recipe.model, BaselineRecipe):
        return _count(recipe.model, ground)
    run = Run(folder)
    if not run.exists:
        columns = learn_columns(recipe.model, ground.metadata, ground.log.vocabulary)
        event_features = learn_event_features(recipe, ground.log, ground.split.train)
        run.start(
            recipe,
            ground.log,
            ground.metadata,
            columns,
            event_features,
            train=ground.split.train,
            data=ground.data,
            device=check_device(recipe),
        )
    pruner = _Pruner(report)
    try:
        progress = train_run(run, ground.log, ground.split, stop=lambda: pruner.asked or stop(), trackers=[pruner])
    except Diverged as error:
        return Outcome(value=None, details={"ended": str(error), "epochs": len(run.read_epochs())})
    except torch.OutOfMemoryError:
        return Outcome(value=None, details={"ended": "the device has too little memory", "epochs": 0})
    if not (progress.finished or pruner.asked):
        return None
    return _describe(run, progress)


def discard_weights(folder: Path) -> None:
    """Remove the weights of a trial that is not the best one; its recipe and its course stay."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    (folder / "kept.safetensors").unlink(missing_ok=True)


def _describe(run: Run, progress: Progress) -> Outcome:
    kept = next(line for line in run.read_epochs() if line["epoch"] == progress.kept_epoch)["validation"]
    details = {
        "metrics": {name: kept[name] for name in SHOWN},
        "epochs": progress.epoch,
        "kept_epoch": progress.kept_epoch,
        "seconds": round(progress.seconds, 1),
        "ended": progress.finished or "pruned",
    }
    return Outcome(value=kept[PRIMARY_METRIC] if progress.finished else None, details=details)


def _count(recipe: BaselineRecipe, ground: Ground) -> Outcome:
    log, split = ground.log, ground.split
    scorer = make_baseline(recipe, split.train, len(log.vocabulary), log.timestamps_ms)
    found = average(evaluate(scorer, split.validation))
    metrics = {name: found[name] for name in SHOWN}
    return Outcome(
        value=found[PRIMARY_METRIC],
        details={"metrics": metrics, "epochs": 0, "kept_epoch": 0, "seconds": 0.0, "ended": "counted"},
    )

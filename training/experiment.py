"""`fit`: from a log to a finished run, wired once; and the evaluation of runs and baselines."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.contract.files import write_whole
from training.baselines import Markov, Popularity
from training.batches import Cloze
from training.checkpoint import load_checkpoint, load_weights, save_checkpoint, save_weights
from training.curves import draw_curves
from training.display import Display
from training.environment import choose_device
from training.errors import DataError, RecipeError, RunError
from training.evaluation import NetworkScorer, Scorer, evaluate
from training.files import write_json
from training.items import read_items
from training.log import Log
from training.loop import Epoch, Progress, Watcher, train
from training.metrics import average
from training.optimizer import make_optimizer
from training.reader import read_log
from training.recipe import DataRecipe, Recipe
from training.results import compare_models, describe_evaluation, describe_metrics
from training.run import Run
from training.split import MIN_EVENTS, PROTOCOL, Questions, Split, leave_one_out

BASELINES: dict[str, Callable[..., Scorer]] = {"pop": Popularity, "markov": Markov}


def fit(
    recipe: Recipe, data: Path, out: Path, *, resume: bool, items: Path | None, stop: Callable[[], bool]
) -> dict[str, Any] | None:
    """Train by a recipe into the folder `out` and return its results, or None after a stop.

    With `resume`, a run that was stopped or killed goes on where its last checkpoint was.
    """
    run = Run(out)
    _check_folder(run, resume=resume)
    device = _check_device(recipe)
    metadata = read_items(items) if items else None
    log, split = _read_split(data, recipe.data)
    if run.exists:
        _check_same(run, recipe, log)
    else:
        run.start(recipe, log, metadata, data=data, device=device)
    if run.is_finished:
        return run.read_results()
    progress = _train(run, split, device, stop)
    return _conclude(run, split, device, progress) if progress.finished else None


def evaluate_baseline(name: str, data: Path, recipe: DataRecipe) -> dict[str, Any]:
    """Test metrics of a baseline on a log."""
    log, split = _read_split(data, recipe)
    scorer = BASELINES[name](split.train, len(log.vocabulary))
    return describe_evaluation(evaluate(scorer, split.test), seed=None)


def evaluate_run(run: Run, data: Path, recipe: DataRecipe) -> dict[str, Any]:
    """Test metrics of a run's kept weights on a log, its own or another one."""
    log = read_log(data, recipe, vocabulary=run.vocabulary)
    if log.fingerprint != run.config["data"]["fingerprint"] or log.dropped:
        sys.stderr.write(
            f"note: {data} is not the log that {run.path} was trained on; "
            f"{log.dropped} events of items that it does not know were left out\n"
        )
    questions = leave_one_out(log).test
    if not len(questions):
        raise DataError(f"{data}: no user has {MIN_EVENTS} events of known items, so there is nothing to test on")
    scorer = NetworkScorer(run.load_network())
    return describe_evaluation(evaluate(scorer, questions), seed=run.recipe.train.seed)


def _check_folder(run: Run, *, resume: bool) -> None:
    if run.exists and not resume:
        raise RunError(f"{run.path} holds a run already: continue it with --resume or choose another --out")
    if not run.exists and run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())) and not resume:
        raise RunError(f"{run.path} is not empty: choose another --out")


def _check_device(recipe: Recipe) -> torch.device:
    device = choose_device(recipe.train.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RecipeError("train.device is cuda and there is none here: set train.device=auto")
    return device


def _read_split(data: Path, recipe: DataRecipe) -> tuple[Log, Split]:
    log = read_log(data, recipe)
    split = leave_one_out(log)
    if not len(split.test):
        raise DataError(f"{data}: no user has {MIN_EVENTS} events, so there is nothing to validate or test on")
    return log, split


def _check_same(run: Run, recipe: Recipe, log: Log) -> None:
    """Refuse to go on with another recipe or log than the run began with."""
    if log.fingerprint != run.config["data"]["fingerprint"]:
        raise RunError(f"{run.path} was begun on another log: --resume wants the same --data")
    begun, now = run.recipe.to_dict(), recipe.to_dict()
    for section, entries in now.items():
        for key, value in entries.items():
            if begun[section][key] != value:
                raise RunError(
                    f"{run.path} was begun with {section}.{key} = {begun[section][key]!r}, not {value!r}: "
                    "--resume wants the same recipe"
                )


def _train(run: Run, split: Split, device: torch.device, stop: Callable[[], bool]) -> Progress:
    recipe = run.recipe.train
    torch.manual_seed(recipe.seed)
    network = run.make_network().to(device)
    optimizer = make_optimizer(network, recipe)
    fresh = not run.checkpoint.exists()
    progress = Progress() if fresh else load_checkpoint(run.checkpoint, network, optimizer)
    samples = Cloze(split.train, recipe, max_length=network.config.max_length, item_count=network.config.item_count)
    questions = _choose_users(split.validation, recipe.validation_users, recipe.seed)
    with Display(recipe, samples.steps) as display:

        def note_epoch(epoch: Epoch, state: Progress) -> None:
            run.append_epoch(replace(epoch, validation=dict(epoch.validation)))
            display.show_epoch(epoch, state)

        train(
            network,
            optimizer,
            samples=samples,
            validate=lambda: average(evaluate(NetworkScorer(network), questions)),
            recipe=recipe,
            progress=progress,
            watcher=Watcher(
                on_step=display.show_step,
                on_epoch=note_epoch,
                keep=lambda: save_weights(run.kept, network),
                save=lambda state: save_checkpoint(run.checkpoint, network, optimizer, state),
                stop=stop,
            ),
        )
    return progress


def _choose_users(questions: Questions, most: int | None, seed: int) -> Questions:
    """All validation questions, or the same random ones in every epoch."""
    if most is None or most >= len(questions):
        return questions
    return questions.select(np.sort(np.random.default_rng(seed).permutation(len(questions))[:most]))


def _conclude(run: Run, split: Split, device: torch.device, progress: Progress) -> dict[str, Any]:
    """Measure the kept weights beside the baselines on the test questions, and write it down."""
    network = run.make_network()
    load_weights(run.kept, network)
    scorers: Mapping[str, Scorer] = {
        "bert4rec": NetworkScorer(network.to(device)),
        **{name: make(split.train, len(run.vocabulary)) for name, make in BASELINES.items()},
    }
    values: dict[str, dict[str, NDArray[np.float64]]] = {
        name: evaluate(scorer, split.test) for name, scorer in scorers.items()
    }
    results = {
        "protocol": PROTOCOL,
        "seed": run.recipe.train.seed,
        "users": len(split.test),
        "models": {name: describe_metrics(value) for name, value in values.items()},
        "comparison": compare_models(values),
        "epochs": progress.epoch,
        "kept_epoch": progress.kept_epoch,
        "stopped_because": progress.finished,
        "training_seconds": round(progress.seconds, 1),
        "finished_at": f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    write_whole(run.curves, draw_curves(run.read_epochs(), progress.kept_epoch))
    write_json(run.path / "results.json", results)
    return results

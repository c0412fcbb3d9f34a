"""`fit`: from a log to a finished run, wired once."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model.nets.network import Network
from training.baselines.catalogue import make_baseline
from training.baselines.rules import require_room
from training.data.event_features import learn_event_features
from training.data.interactions import Log
from training.data.item_features import learn_columns
from training.data.split import Questions, Split
from training.environment import choose_device
from training.errors import RecipeError, RunError
from training.evaluation.metrics import average
from training.evaluation.protocol import PROTOCOLS, SEED, build_task, find_twin
from training.evaluation.ranking import NetworkScorer, Scorer, evaluate, evaluate_task
from training.evaluation.results import describe_scores, describe_test
from training.fit.batches import Samples
from training.fit.count_weights import count_beside
from training.fit.distributed import ALONE, Processes, join_processes
from training.fit.item_vectors import VECTORS, learn_item_start, read_item_start
from training.fit.loop import SILENT, Watcher, find_end, train
from training.fit.optimizer import make_optimizer
from training.fit.pictures import draw_run
from training.fit.ppmi import add_item_vectors, factorise_items
from training.fit.progress_bar import Display
from training.fit.resuming import check_folder, check_same
from training.json_files import write_json
from training.logs.items import read_items
from training.logs.reader import read_log
from training.recipe import DataRecipe, Recipe
from training.recipe_models import BASELINES, BaselineRecipe
from training.report.report import report_finished
from training.runs.checkpoint import load_checkpoint, save_checkpoint, save_weights
from training.runs.counted import keep_counted
from training.runs.evaluate import cut, make_scorer, name_protocol, print_note
from training.runs.lock import FIT, hold_lock
from training.runs.networks import load_network, make_network
from training.runs.progress import Epoch, Progress, RunTracker, Tracker
from training.runs.run import Run

POPULARITY = "pop"
COMPARED = (POPULARITY, "markov", "rules")
"""Baselines that `fit` evaluates beside each finished run: the cheap ones."""
COMPARED_BY_TIME = (*COMPARED, "recent-pop", "session-knn")
"""The same where one moment parts all users: there counting the last week alone may beat everything."""


def fit(
    recipe: Recipe,
    data: Path,
    out: Path,
    *,
    resume: bool,
    items: Path | None,
    stop: Callable[[], bool],
    baselines: Sequence[str] | None = None,
    trackers: Sequence[Callable[[Run], RunTracker]] = (),
    item_vectors: Path | None = None,
    report: bool = False,
) -> dict[str, Any] | None:
    """Train by a recipe into the folder `out`. Returns its results and those of some baselines, or None after a stop.

    Without `baselines` they are those of the split.

    With `resume`, a run that was stopped or killed goes on where its last checkpoint was, and so does a finished one
    where the recipe now gives it more epochs or seconds. Under torchrun every process calls this; the first one writes.
    """
    run = Run(out)
    if recipe.data.split == "none":
        raise RecipeError("data.split = none leaves nothing to stop by or to test on: fit needs leave-one-out or time")
    device = check_device(recipe)
    with ExitStack() as held, join_processes(device) as processes:
        if processes.first:
            check_folder(run, resume=resume)
        metadata = read_items(items, recipe.data.ids) if items else None
        log, split = _read_split(data, recipe.data)
        if baselines is None:
            baselines = COMPARED_BY_TIME if recipe.data.split == "time" else COMPARED
        require_room(len(log.vocabulary), recipe.rules_per_item)

        def begin() -> dict[str, Any] | None:
            if run.exists:
                longer = check_same(run, recipe, log)
                if run.is_finished and not longer:
                    return run.read_results()
                held.enter_context(hold_lock(out / FIT, "training"))
                if longer:
                    run.change_length(recipe)
            else:
                columns = learn_columns(recipe.model, metadata, log.vocabulary)
                event_features = learn_event_features(recipe, log, split.train)
                item_start = learn_item_start(recipe, item_vectors, log.vocabulary)
                held.enter_context(hold_lock(out / FIT, "training"))
                if run.exists:
                    raise RunError(f"another training has just begun {run.path}: continue that one with --resume")
                run.start(
                    recipe,
                    log,
                    metadata,
                    columns,
                    event_features,
                    train=split.train,
                    data=data,
                    device=device,
                    item_start=item_start,
                )
            return run.read_results() if run.is_finished else None

        results = processes.broadcast(begin)
        if results is None:
            told = [held.enter_context(track(run)) for track in trackers] if processes.first else []
            if isinstance(recipe.model, BaselineRecipe):
                progress = Progress(finished="counted")
            else:
                progress = train_run(run, log, split, stop=stop, processes=processes, trackers=told)
            if progress.finished:
                results = processes.broadcast(lambda: conclude_run(run, log, split, progress, baselines, report=report))
                for tracker in told:
                    tracker.note_results(results)
    return results


def check_device(recipe: Recipe) -> torch.device:
    """The device that a recipe trains on. Raises RecipeError where this machine lacks it."""
    device = choose_device(recipe.train.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RecipeError("train.device is cuda, but this machine has no CUDA device: set train.device=auto")
    return device


def _read_split(data: Path, recipe: DataRecipe) -> tuple[Log, Split]:
    log = read_log(data, recipe)
    split = cut(log, recipe)
    wanted = recipe.held_out_users if recipe.split == "leave-one-out" else None
    if wanted is not None and len(split.validation) < wanted:
        print_note(
            f"data.held_out_users is {wanted:,}, but {len(split.validation):,} users have an event for it: all do"
        )
    return log, split


def train_run(
    run: Run,
    log: Log,
    split: Split,
    *,
    stop: Callable[[], bool],
    processes: Processes = ALONE,
    begin: Callable[[Network], None] | None = None,
    trackers: Sequence[Tracker] = (),
) -> Progress:
    """Train the network of a started run from its checkpoint, if it has one. Returns the progress, `finished` or not.

    `begin` sets the weights that a fresh run begins with, in place of train.item_init. A split without validation
    questions trains to the end of the epochs, and no epoch of it is recorded. `trackers` are told what happens.
    """
    recipe, device = run.recipe.train, choose_device(run.recipe.train.device)
    torch.manual_seed(recipe.seed)
    network = make_network(run).to(device)
    optimizer = make_optimizer(network, recipe)
    fresh = processes.broadcast(lambda: not run.checkpoint.exists())
    if fresh and begin is not None:
        begin(network)
    elif fresh and recipe.item_init == VECTORS:
        add_item_vectors(network, read_item_start(run))
    elif fresh and recipe.item_init == "ppmi":
        count, width = network.item_count, network.config.width
        add_item_vectors(network, processes.broadcast(lambda: factorise_items(split.train, count, width, recipe.seed)))
    progress = Progress() if fresh else load_checkpoint(run.checkpoint, network, optimizer)
    if progress.epoch and not progress.step:  # between two epochs, or behind the last one: the length may have changed
        progress.finished = find_end(recipe, progress)
    events = run.encode_events(log)
    samples = Samples(
        split.train,
        recipe,
        max_length=network.config.max_length,
        item_count=network.item_count,
        causal=network.causal,
        events=events,
    )
    questions = choose_users(split.validation, recipe.validation_users, recipe.seed)

    def validate() -> dict[str, float]:
        return average(evaluate(NetworkScorer(network, split.train, events), questions))

    loop = partial(
        train,
        network,
        optimizer,
        samples=samples,
        validate=validate if len(questions) else None,
        recipe=recipe,
        progress=progress,
        processes=processes,
    )
    if not processes.first:
        loop(watcher=SILENT)
        return progress
    with Display(recipe, samples.steps) as display:
        told: Sequence[Tracker] = (display, *trackers)

        def note_step(state: Progress, loss: float) -> None:
            for tracker in told:
                tracker.note_step(state, loss)

        def note_epoch(epoch: Epoch, state: Progress) -> None:
            if epoch.validation:
                run.append_epoch(replace(epoch, validation=dict(epoch.validation)))
            for tracker in told:
                tracker.note_epoch(epoch, state)

        loop(
            watcher=Watcher(
                on_step=note_step,
                on_epoch=note_epoch,
                keep=lambda: save_weights(run.kept, network),
                save=lambda state: save_checkpoint(run.checkpoint, network, optimizer, state),
                stop=stop,
            )
        )
    return progress


def choose_users(questions: Questions, most: int | None, seed: int) -> Questions:
    """All validation questions, or the same random ones in every epoch."""
    if most is None or most >= len(questions):
        return questions
    return questions.select(np.sort(np.random.default_rng(seed).permutation(len(questions))[:most]))


def conclude_run(
    run: Run,
    log: Log,
    split: Split,
    progress: Progress,
    baselines: Sequence[str] | Mapping[str, Scorer],
    *,
    most_users: int | None = None,
    report: bool = False,
) -> dict[str, Any]:
    """Evaluate the run and some baselines, counted or by name, on the test questions, and write the results.

    With `most_users` so many users are asked, chosen at random. `report` writes report.html, too.
    """
    name, V = run.recipe.name, len(run.vocabulary)
    recipe = run.recipe.train
    counted = count_beside(run, log, split, choose_users(split.validation, recipe.validation_users, recipe.seed))
    begun, begun_cpu = time.monotonic(), time.process_time()
    scorers: dict[str, Scorer] = {name: make_scorer(run, log, split)}
    if counted:
        scorers[run.recipe.model.name] = NetworkScorer(load_network(run, alone=True), events=run.encode_events(log))
    if isinstance(run.recipe.model, BaselineRecipe):
        progress.seconds, progress.cpu_seconds = time.monotonic() - begun, time.process_time() - begun_cpu
        keep_counted(run, log)
    for baseline in baselines:
        if baseline not in scorers and isinstance(baselines, Mapping):
            scorers[baseline] = baselines[baseline]
        elif baseline not in scorers:
            scorers[baseline] = make_baseline(BASELINES[baseline](name=baseline), split.counted, V, log.timestamps_ms)
    task = build_task(replace(PROTOCOLS[name_protocol(run.recipe.data)], most_users=most_users), log, split, SEED)
    print_note(find_twin(task.protocol, log))
    scores = {name: evaluate_task(scorer, task) for name, scorer in scorers.items()}
    served = None
    if run.recipe.rules_per_item is not None:
        served = evaluate_task(make_scorer(run, log, split, leave_own_out=False), task)
    results = {
        **describe_test(task, scores, tested=name, popularity=POPULARITY),
        "seed": recipe.seed,
        **counted,
        **({"served": describe_scores(served, task.seed)} if served else {}),
        "epochs": progress.epoch,
        "kept_epoch": progress.kept_epoch,
        "stopped_because": progress.finished,
        "training_seconds": round(progress.seconds, 1),
        "training_cpu_seconds": round(progress.cpu_seconds, 1),
        "finished_at": f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    run.write_ranks(scores[name].ranks)
    draw_run(run, progress, task.questions.histories)
    write_json(run.path / "results.json", results)
    if report:
        report_finished(run, log, split, scorers, {name: found.ranks.lists for name, found in scores.items()})
    return results

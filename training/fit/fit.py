"""`fit`: from a log to a finished run, wired once."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model.contract.atomic_files import write_whole
from model.nets.network import Network
from training.baselines.catalogue import make_baseline
from training.baselines.rules import count_rules, cut_rules, require_room
from training.baselines.rules_of_others import RulesOfOthers
from training.data.event_features import learn_event_features
from training.data.histories import Histories
from training.data.interactions import Log
from training.data.item_features import learn_columns
from training.data.split import Questions, Split
from training.environment import choose_device
from training.errors import InputError, RecipeError, RunError
from training.evaluation.attention import measure_attention
from training.evaluation.metrics import PRIMARY_METRIC, average
from training.evaluation.protocol import PROTOCOLS, SEED, build_task, find_twin
from training.evaluation.ranking import NetworkScorer, Scorer, evaluate, evaluate_task
from training.evaluation.results import describe_test
from training.fit.batches import Samples
from training.fit.distributed import ALONE, Processes, join_processes
from training.fit.loop import SILENT, Watcher, find_end, train
from training.fit.optimizer import make_optimizer
from training.fit.ppmi import add_item_vectors, factorise_items
from training.fit.progress_bar import Display
from training.fit.rule_weight import choose_rule_weight, try_rule_weights
from training.json_files import write_json
from training.logs.items import read_items
from training.logs.reader import read_log
from training.plots.attention_map import draw_attention
from training.plots.learning_curves import draw_curves
from training.recipe import DataRecipe, Recipe
from training.recipe_models import BASELINES, BaselineRecipe, TransformerRecipe
from training.runs.checkpoint import load_checkpoint, save_checkpoint, save_weights
from training.runs.evaluate import cut, make_scorer, name_protocol, print_note
from training.runs.lock import FIT, hold_lock
from training.runs.networks import load_network, make_network
from training.runs.progress import Epoch, Progress
from training.runs.run import Run

LENGTH = ("train.epochs", "train.budget_seconds")
"""What may be another one when a run is resumed; the learning rate goes on as if it had been so from the start."""
POPULARITY = "pop"
COMPARED = (POPULARITY, "markov", "rules")
"""Baselines that `fit` evaluates beside each finished run: the cheap ones."""


def fit(
    recipe: Recipe,
    data: Path,
    out: Path,
    *,
    resume: bool,
    items: Path | None,
    stop: Callable[[], bool],
    baselines: Sequence[str] = COMPARED,
) -> dict[str, Any] | None:
    """Train by a recipe into the folder `out`. Returns its results and those of some baselines, or None after a stop.

    With `resume`, a run that was stopped or killed goes on where its last checkpoint was, and so does a finished one
    where the recipe now gives it more epochs or seconds. Under torchrun every process calls this; the first one writes.
    """
    run = Run(out)
    if recipe.data.split == "none":
        raise RecipeError("data.split = none leaves nothing to stop by or to test on: fit needs leave-one-out or time")
    device = check_device(recipe)
    with ExitStack() as held, join_processes(device) as processes:
        if processes.first:
            _check_folder(run, resume=resume)
        metadata = read_items(items, recipe.data.ids) if items else None
        log, split = _read_split(data, recipe.data)
        require_room(len(log.vocabulary), recipe.rules_per_item)

        def begin() -> dict[str, Any] | None:
            if run.exists:
                longer = _check_same(run, recipe, log)
                if run.is_finished and not longer:
                    return run.read_results()
                held.enter_context(hold_lock(out / FIT, "training"))
                if longer:
                    run.change_length(recipe)
            else:
                columns = learn_columns(recipe.model, metadata, log.vocabulary)
                event_features = learn_event_features(recipe, log, split.train)
                held.enter_context(hold_lock(out / FIT, "training"))
                if run.exists:
                    raise RunError(f"another training has just begun {run.path}: continue that one with --resume")
                run.start(recipe, log, metadata, columns, event_features, train=split.train, data=data, device=device)
            return run.read_results() if run.is_finished else None

        results = processes.broadcast(begin)
        if results is None:
            if isinstance(recipe.model, BaselineRecipe):
                progress = Progress(finished="counted")
            else:
                progress = train_run(run, log, split, stop=stop, processes=processes)
            if progress.finished:
                results = processes.broadcast(lambda: conclude_run(run, log, split, progress, baselines))
    return results


def _check_folder(run: Run, *, resume: bool) -> None:
    if run.exists and not resume:
        raise RunError(f"{run.path} already holds a run: continue it with --resume, or choose another --out")
    if not run.exists and not resume and run.path.exists() and (not run.path.is_dir() or _holds_files(run.path)):
        raise RunError(f"{run.path} is not empty: choose another --out")


def _holds_files(folder: Path) -> bool:
    return any(path.name != FIT for path in folder.iterdir())  # it is left by a training that could not begin


def check_device(recipe: Recipe) -> torch.device:
    """The device that a recipe trains on. Raises RecipeError where this machine lacks it."""
    device = choose_device(recipe.train.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RecipeError("train.device is cuda, but this machine has no CUDA device: set train.device=auto")
    return device


def _read_split(data: Path, recipe: DataRecipe) -> tuple[Log, Split]:
    log = read_log(data, recipe)
    return log, cut(log, recipe)


def _check_same(run: Run, recipe: Recipe, log: Log) -> bool:
    """Refuse to go on with another recipe or log than the run began with. True where only its length is another one."""
    if log.fingerprint != run.config["data"]["fingerprint"]:
        raise RunError(f"{run.path} was started on another log: --resume needs the same --data")
    begun, now = run.recipe.to_dict(), recipe.to_dict()
    for section, entries in now.items():
        for key, value in entries.items():
            if begun[section][key] != value and f"{section}.{key}" not in LENGTH:
                raise RunError(
                    f"{run.path} was started with {section}.{key} = {begun[section][key]!r}, not {value!r}: "
                    f"--resume needs the same recipe, except {' and '.join(LENGTH)}"
                )
    return begun != now


def train_run(
    run: Run,
    log: Log,
    split: Split,
    *,
    stop: Callable[[], bool],
    processes: Processes = ALONE,
    begin: Callable[[Network], None] | None = None,
) -> Progress:
    """Train the network of a started run from its checkpoint, if it has one. Returns the progress, `finished` or not.

    `begin` sets the weights that a fresh run begins with, in place of train.item_init. A split without validation
    questions trains to the end of the epochs, and no epoch of it is recorded.
    """
    recipe, device = run.recipe.train, choose_device(run.recipe.train.device)
    torch.manual_seed(recipe.seed)
    network = make_network(run).to(device)
    optimizer = make_optimizer(network, recipe)
    fresh = processes.broadcast(lambda: not run.checkpoint.exists())
    if fresh and begin is not None:
        begin(network)
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
    questions = _choose_users(split.validation, recipe.validation_users, recipe.seed)

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

        def note_epoch(epoch: Epoch, state: Progress) -> None:
            if epoch.validation:
                run.append_epoch(replace(epoch, validation=dict(epoch.validation)))
            display.show_epoch(epoch, state)

        loop(
            watcher=Watcher(
                on_step=display.show_step,
                on_epoch=note_epoch,
                keep=lambda: save_weights(run.kept, network),
                save=lambda state: save_checkpoint(run.checkpoint, network, optimizer, state),
                stop=stop,
            )
        )
    return progress


def _choose_users(questions: Questions, most: int | None, seed: int) -> Questions:
    """All validation questions, or the same random ones in every epoch."""
    if most is None or most >= len(questions):
        return questions
    return questions.select(np.sort(np.random.default_rng(seed).permutation(len(questions))[:most]))


def conclude_run(run: Run, log: Log, split: Split, progress: Progress, baselines: Sequence[str]) -> dict[str, Any]:
    """Evaluate the run and some baselines on the test questions, and write the results."""
    name, V = run.recipe.name, len(run.vocabulary)
    rules = None if run.recipe.rules_per_item is None else _add_rules(run, log, split, run.recipe.rules_per_item)
    begun, begun_cpu = time.monotonic(), time.process_time()
    scorers: dict[str, Scorer] = {name: make_scorer(run, log, split)}
    if rules is not None:
        scorers[run.recipe.model.name] = NetworkScorer(load_network(run, alone=True), events=run.encode_events(log))
    if isinstance(run.recipe.model, BaselineRecipe):
        progress.seconds, progress.cpu_seconds = time.monotonic() - begun, time.process_time() - begun_cpu
    for baseline in baselines:
        if baseline not in scorers:
            scorers[baseline] = make_baseline(BASELINES[baseline](name=baseline), split.train, V, log.timestamps_ms)
    task = build_task(PROTOCOLS[name_protocol(run.recipe.data)], log, split, SEED)
    print_note(find_twin(task.protocol, log))
    scores = {name: evaluate_task(scorer, task) for name, scorer in scorers.items()}
    results = {
        **describe_test(task, scores, tested=name, popularity=POPULARITY),
        "seed": run.recipe.train.seed,
        **({} if rules is None else {"rules": rules}),
        "epochs": progress.epoch,
        "kept_epoch": progress.kept_epoch,
        "stopped_because": progress.finished,
        "training_seconds": round(progress.seconds, 1),
        "training_cpu_seconds": round(progress.cpu_seconds, 1),
        "finished_at": f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    run.write_ranks(scores[name].ranks)
    _draw(run, progress, task.questions.histories)
    write_json(run.path / "results.json", results)
    return results


def _add_rules(run: Run, log: Log, split: Split, most: int) -> dict[str, Any]:
    """Count rules in the training histories, choose their strength on the validation questions, and keep them."""
    scorer = NetworkScorer(load_network(run, alone=True), events=run.encode_events(log))
    recipe = run.recipe.train
    counts = count_rules(split.train, len(run.vocabulary))
    rules = cut_rules(counts, most).to(scorer.network.item_bias.device)
    questions = _choose_users(split.validation, recipe.validation_users, recipe.seed)
    tried = try_rule_weights(scorer, RulesOfOthers(rules, counts, split.train), questions)
    rules.strength.fill_(choose_rule_weight(tried))
    save_weights(run.rules, rules)
    return {
        "strength": choose_rule_weight(tried),
        PRIMARY_METRIC: {f"{strength:g}": value for strength, value in tried.items()},
    }


def _draw(run: Run, progress: Progress, histories: Histories) -> None:
    if progress.epoch:
        write_whole(run.curves, draw_curves(run.read_epochs(), progress.kept_epoch, run.recipe))
    if isinstance(run.recipe.model, TransformerRecipe):
        _draw_attention(run, load_network(run, alone=True), histories)


def _draw_attention(run: Run, network: Network, histories: Histories) -> None:
    try:
        found = measure_attention(network, histories)
    except InputError as error:
        print_note(f"{run.attention.name} was not written: {error}")
    else:
        write_whole(run.attention, draw_attention(found, run.recipe.model.name))

"""`fit`: from a log to a finished run, wired once."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model.contract.files import write_whole
from model.nets.network import Network
from training.attention import measure_attention
from training.batches import Samples
from training.behaviour import learn_behaviour
from training.checkpoint import load_checkpoint, save_checkpoint, save_weights
from training.counters.catalogue import make_counter
from training.curves import draw_curves
from training.display import Display
from training.environment import choose_device
from training.errors import InputError, RecipeError, RunError
from training.evaluation import NetworkScorer, Scorer, evaluate, examine
from training.examination import cut, make_scorer, name_protocol, tell
from training.features import learn_columns
from training.files import write_json
from training.heat_map import draw_attention
from training.histories import Histories
from training.items import read_items
from training.log import Log
from training.loop import SILENT, WATCHED, Epoch, Progress, Watcher, train
from training.metrics import average
from training.model_recipe import COUNTERS, CounterRecipe, TransformerRecipe
from training.optimizer import make_optimizer
from training.processes import Processes, join_processes
from training.protocol import PROTOCOLS, SEED, set_exam
from training.reader import read_log
from training.recipe import DataRecipe, Recipe
from training.results import compare_models, describe_marks
from training.rules import learn_rules, require_room
from training.run import Run
from training.split import Questions, Split
from training.start import factorise_items, place_items
from training.strength import choose_strength, try_strengths

BESIDE = ("pop", "markov", "rules")
"""Counters that every finished run is measured beside: the cheap ones."""


def fit(
    recipe: Recipe,
    data: Path,
    out: Path,
    *,
    resume: bool,
    items: Path | None,
    stop: Callable[[], bool],
    beside: Sequence[str] = BESIDE,
) -> dict[str, Any] | None:
    """Train by a recipe into the folder `out` and return its results beside some counters', or None after a stop.

    With `resume`, a run that was stopped or killed goes on where its last checkpoint was. Under torchrun every process
    calls this; the first one alone writes.
    """
    run = Run(out)
    device = _check_device(recipe)
    with join_processes(device) as processes:
        if processes.first:
            _check_folder(run, resume=resume)
        metadata = read_items(items) if items else None
        log, split = _read_split(data, recipe.data)
        require_room(len(log.vocabulary), recipe.rules)

        def begin() -> dict[str, Any] | None:
            if run.exists:
                _check_same(run, recipe, log)
            else:
                columns = learn_columns(recipe.model, metadata, log.vocabulary)
                behaviour = learn_behaviour(recipe, log, split.train)
                run.start(recipe, log, metadata, columns, behaviour, train=split.train, data=data, device=device)
            return run.read_results() if run.is_finished else None

        results = processes.tell(begin)
        if results is None:
            if isinstance(recipe.model, CounterRecipe):
                progress = Progress(finished="counted")
            else:
                progress = _train(run, log, split, stop, processes)
            if progress.finished:
                results = processes.tell(lambda: _conclude(run, log, split, progress, beside))
    return results


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
    return log, cut(log, recipe)


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


def _train(run: Run, log: Log, split: Split, stop: Callable[[], bool], processes: Processes) -> Progress:
    recipe, device = run.recipe.train, choose_device(run.recipe.train.device)
    torch.manual_seed(recipe.seed)
    network = run.make_network().to(device)
    optimizer = make_optimizer(network, recipe)
    fresh = processes.tell(lambda: not run.checkpoint.exists())
    if fresh and recipe.start == "ppmi":
        config = network.config
        place_items(
            network,
            processes.tell(lambda: factorise_items(split.train, config.item_count, config.width, recipe.seed)),
        )
    progress = Progress() if fresh else load_checkpoint(run.checkpoint, network, optimizer)
    events = run.encode_events(log)
    samples = Samples(
        split.train,
        recipe,
        max_length=network.config.max_length,
        item_count=network.config.item_count,
        causal=network.causal,
        events=events,
    )
    questions = _choose_users(split.validation, recipe.validation_users, recipe.seed)
    loop = partial(
        train,
        network,
        optimizer,
        samples=samples,
        validate=lambda: average(evaluate(NetworkScorer(network, split.train, events), questions)),
        recipe=recipe,
        progress=progress,
        processes=processes,
    )
    if not processes.first:
        loop(watcher=SILENT)
        return progress
    with Display(recipe, samples.steps) as display:

        def note_epoch(epoch: Epoch, state: Progress) -> None:
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


def _conclude(run: Run, log: Log, split: Split, progress: Progress, beside: Sequence[str]) -> dict[str, Any]:
    """Measure the run beside counters on the test questions, and write it down."""
    name, V = run.recipe.name, len(run.vocabulary)
    rules = None if run.recipe.rules is None else _add_rules(run, log, split, run.recipe.rules)
    begun = time.monotonic()
    scorers: dict[str, Scorer] = {name: make_scorer(run, log, split)}
    if rules is not None:
        scorers[run.recipe.model.network] = NetworkScorer(run.load_network(alone=True), events=run.encode_events(log))
    if isinstance(run.recipe.model, CounterRecipe):
        progress.seconds = time.monotonic() - begun
    for counter in beside:
        if counter not in scorers:
            scorers[counter] = make_counter(COUNTERS[counter](network=counter), split.train, V, log.timestamps_ms)
    exam = set_exam(PROTOCOLS[name_protocol(run.recipe.data)], log, split, SEED)
    marks = {name: examine(scorer, exam) for name, scorer in scorers.items()}
    results = {
        "protocol": exam.protocol.name,
        "seed": run.recipe.train.seed,
        "users": len(exam.questions),
        "models": {name: describe_marks(mark, exam.seed) for name, mark in marks.items()},
        **({"comparison": compare_models(marks, exam.seed)} if len(marks) > 1 else {}),
        **({} if rules is None else {"rules": rules}),
        "epochs": progress.epoch,
        "kept_epoch": progress.kept_epoch,
        "stopped_because": progress.finished,
        "training_seconds": round(progress.seconds, 1),
        "finished_at": f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    run.write_ranks(marks[name].ranks)
    _draw(run, progress, exam.questions.histories)
    write_json(run.path / "results.json", results)
    return results


def _add_rules(run: Run, log: Log, split: Split, most: int) -> dict[str, Any]:
    """Count rules in the training histories, choose their strength on the validation questions, and keep them."""
    scorer = NetworkScorer(run.load_network(alone=True), events=run.encode_events(log))
    recipe = run.recipe.train
    rules = learn_rules(split.train, len(run.vocabulary), most).to(scorer.network.item_bias.device)
    tried = try_strengths(scorer, rules, _choose_users(split.validation, recipe.validation_users, recipe.seed))
    rules.strength.fill_(choose_strength(tried))
    save_weights(run.rules, rules)
    return {"strength": choose_strength(tried), WATCHED: {f"{strength:g}": value for strength, value in tried.items()}}


def _draw(run: Run, progress: Progress, histories: Histories) -> None:
    if progress.epoch:
        write_whole(run.curves, draw_curves(run.read_epochs(), progress.kept_epoch, run.recipe))
    if isinstance(run.recipe.model, TransformerRecipe):
        _draw_attention(run, run.load_network(alone=True), histories)


def _draw_attention(run: Run, network: Network, histories: Histories) -> None:
    try:
        found = measure_attention(network, histories)
    except InputError as error:
        tell(f"{run.attention.name} was not drawn: {error}")
    else:
        write_whole(run.attention, draw_attention(found, run.recipe.model.network))

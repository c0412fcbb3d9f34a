"""The two trainings of a retraining: one without the newest events, which is measured, and the refit on all of them."""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from model.nets.network import Network, SequenceNetwork
from model.nets.registry import NETWORKS
from training.baselines.rules import learn_rules, require_room
from training.data.event_features import learn_event_features
from training.data.histories import Histories
from training.data.interactions import Log
from training.data.item_features import Metadata, learn_columns
from training.data.split import Split, hold_nothing_out
from training.errors import RecipeError
from training.fit.count_weights import keep_counts, read_weights
from training.fit.fit import COMPARED, check_device, conclude_run, train_run
from training.fit.item_vectors import VECTORS
from training.fit.ppmi import count_related
from training.json_files import write_json
from training.recipe import Recipe
from training.retrain.champion import Champion
from training.retrain.held_out import HeldOut
from training.retrain.warm_start import Carried, Source, carry, is_same_network, shrink_and_perturb
from training.runs.checkpoint import load_weights
from training.runs.networks import make_network
from training.runs.run import Run

WARM_SHARE = 0.25
"""Share of a recipe's epochs that a training takes which begins with learned weights."""


@dataclass(frozen=True)
class Start:
    """What a training begins with: `name` is warm, shrunk or cold, `why` says why it is not what was asked for."""

    name: str
    source: Run | None
    why: str = ""


@dataclass(frozen=True)
class Job:
    """What both trainings share."""

    log: Log
    data: Path
    metadata: Metadata | None
    stop: Callable[[], bool]


def choose_start(wanted: str, champion: Champion, recipe: Recipe) -> Start:
    """Begin with the champion's weights where they fit the recipe. Raises RecipeError for what cannot be served."""
    if not issubclass(NETWORKS.get(recipe.model.name, Network), SequenceNetwork):
        raise RecipeError(
            f"retrain trains networks that can be served, and {recipe.model.name} is none: name the recipe of one with "
            "--recipe; what counts is fit and published again, which takes seconds"
        )
    if wanted == "cold":
        return Start("cold", None)
    if champion.run is None:
        return Start("cold", None, f"none of the runs is that of {champion.version}")
    if not is_same_network(champion.run.recipe.model, recipe.model):
        return Start("cold", None, f"{champion.version} has another architecture than the recipe")
    if not champion.run.kept.is_file():
        return Start("cold", None, f"{champion.run.path} has no weights any more")
    return Start(wanted, champion.run)


def shorten(recipe: Recipe, held: HeldOut, start: Start, budget: float | None) -> Recipe:
    """The recipe of the training that is measured: cut by time, a quarter of the epochs where the start is warm.

    `budget` seconds are for both trainings.
    """
    share = 1.0 if start.name == "cold" else WARM_SHARE
    seconds = recipe.train.budget_seconds
    return replace(
        recipe,
        data=replace(recipe.data, split="time", test_share=held.share, held_out_users=None),
        train=replace(
            recipe.train,
            epochs=math.ceil(recipe.train.epochs * share),
            patience=math.ceil(recipe.train.patience * share),
            budget_seconds=budget / 2 if budget else seconds and seconds * share,
        ),
    )


@dataclass(frozen=True)
class Measured:
    """A training without the newest events: its run, what became of the champion's items, and what it took."""

    run: Run
    items: Carried
    cpu_seconds: float


def train_measured(path: Path, recipe: Recipe, job: Job, held: HeldOut, start: Start) -> Measured | None:
    """Train without the newest events, and evaluate. None after a stop."""
    begun_s = time.process_time()
    run = _begin_run(path, recipe, job, held.split, start.source)
    carried: list[Carried] = []

    def begin(network: Network) -> None:
        assert isinstance(network, SequenceNetwork)  # noqa: S101 - champions are served, and this is of their kind
        fresh = copy.deepcopy(network)
        carried.append(_carry(network, job.log, start.source, held.split.train))
        if start.name == "shrunk":
            shrink_and_perturb(network, fresh)

    progress = train_run(run, job.log, held.split, stop=job.stop, begin=begin if start.source else None)
    if not progress.finished:
        return None
    cpu_s = time.process_time() - begun_s
    conclude_run(run, job.log, held.split, progress, COMPARED)
    items = carried[0] if carried else Carried(carried=0, placed=0, drawn=len(run.vocabulary), gone=0)
    return Measured(run, items, cpu_s)


def refit(path: Path, measured: Run, recipe: Recipe, job: Job, parent: str) -> Run | None:
    """Train the measured network on all events for the epochs that were found. None after a stop.

    `recipe` is the one that the next retraining begins with. The results are those from before the refit.
    """
    results = measured.read_results()
    found = measured.recipe
    epochs = max(1, min(results["kept_epoch"], math.ceil(recipe.train.epochs * WARM_SHARE)))
    own = replace(
        found,
        data=replace(found.data, split="none"),
        train=replace(found.train, epochs=epochs, keep="last"),
    )
    split = hold_nothing_out(job.log)
    run = _begin_run(path, own, job, split, measured)

    def begin(network: Network) -> None:
        assert isinstance(network, SequenceNetwork)  # noqa: S101 - as the measured one is
        _carry(network, job.log, measured, split.train)

    progress = train_run(run, job.log, split, stop=job.stop, begin=begin)
    if not progress.finished:
        return None
    most = found.rules_per_item
    rules = None if most is None else learn_rules(split.counted, len(run.vocabulary), most)
    keep_counts(run, job.log, rules, read_weights(results))
    write_json(path / "retrained.json", {"parent": parent, "recipe": recipe.to_dict()})
    write_json(path / "results.json", _describe_refit(results, progress.epoch, progress.seconds, progress.finished))
    return run


def _describe_refit(results: dict[str, Any], epochs: int, seconds: float, why: str) -> dict[str, Any]:
    return {
        **results,
        "measured": "before the refit",
        "epochs": epochs,
        "kept_epoch": epochs,
        "stopped_because": why,
        "training_seconds": round(seconds, 1),
        "finished_at": f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
    }


def _begin_run(path: Path, recipe: Recipe, job: Job, split: Split, source: Run | None) -> Run:
    """Start a run's folder. Codes of side information are the source's: its weights belong to them."""
    require_room(len(job.log.vocabulary), recipe.rules_per_item)
    if source is None and recipe.train.item_init == VECTORS:
        raise RecipeError(
            "a cold start with train.item_init = vectors needs the file that only `fit --item-vectors` takes: "
            "choose another start with --set train.item_init=ppmi"
        )
    if source is None:
        columns = learn_columns(recipe.model, job.metadata, job.log.vocabulary)
        event_features = learn_event_features(recipe, job.log, split.train)
    else:
        columns, event_features = source.read_columns(), source.event_features
    run = Run(path)
    run.start(
        recipe,
        job.log,
        job.metadata,
        columns,
        event_features,
        train=split.train,
        data=job.data,
        device=check_device(recipe),
    )
    return run


def _carry(network: SequenceNetwork, log: Log, source: Run | None, train: Histories) -> Carried:
    assert source is not None  # noqa: S101 - only a start with a source carries
    theirs = make_network(source)
    load_weights(source.kept, theirs)
    assert isinstance(theirs, SequenceNetwork)  # noqa: S101 - as the network is, being of the same recipe
    given = Source(theirs, source.vocabulary, source.read_trained_counts() > 0)
    with torch.no_grad():
        return carry(network, log.vocabulary, given, count_related(train, len(log.vocabulary)))

"""Measuring what is missing: fit, test, time; one cell after the other, whatever was finished before."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from rich.console import Console

from training.benchmark.cells import Cell, Document, name_kind, read_evaluation, require_log
from training.benchmark.discounted import evaluate_discounted
from training.data.item_features import learn_columns
from training.errors import InputError
from training.evaluation.metrics import PRIMARY_METRIC, measure_ranks
from training.evaluation.protocol import PROTOCOLS, SEED, EvaluationTask, require_split
from training.evaluation.ranking import NetworkScorer, Scorer, evaluate_task, remove_seen
from training.evaluation.results import describe_scores, describe_targets, describe_task, number_evaluation
from training.fit.fit import fit
from training.fit.progress_bar import say_minutes
from training.logs.items import read_items
from training.logs.reader import read_log
from training.recipe import Recipe, find_recipe, read_recipe
from training.recipe_models import BaselineRecipe
from training.runs.evaluate import name_protocol, prepare_run
from training.runs.run import Run

_REQUESTS = 30


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be measured."""

    data: Path
    items: Path | None
    """What is known of items, for the models that read it."""
    name: str
    """What the data is called in tables."""
    models: Sequence[str]
    """Recipes by name or path."""
    protocols: Sequence[str] | None
    """None: the one that the recipes' split is measured by."""
    seeds: Sequence[int]
    settings: Sequence[str]
    """Over every recipe."""
    out: Path
    runs: Path

    def list_cells(self) -> list[Cell]:
        """All cells; a baseline has one seed, since nothing in it is drawn. Raises InputError."""
        cells = []
        for model in self.models:
            for seed in self.seeds:
                recipe = read_recipe(model, [*self.settings, f"train.seed={seed}"])
                if isinstance(recipe.model, BaselineRecipe) and seed != self.seeds[0]:
                    continue
                protocols = self.protocols or (name_protocol(recipe.data),)
                cells += [self._make_cell(model, recipe, protocol) for protocol in protocols]
        self._require_one_log(cells)
        return cells

    def _make_cell(self, model: str, recipe: Recipe, protocol: str) -> Cell:
        require_split(PROTOCOLS[protocol], recipe.data, recipe.data, model)
        return Cell(
            model=find_recipe(model).stem,
            recipe=recipe,
            data=self.name,
            protocol=protocol,
            out=self.out,
            runs=self.runs,
        )

    def _require_one_log(self, cells: Sequence[Cell]) -> None:
        first, *others = cells
        for cell in others:
            if cell.recipe.data != first.recipe.data:
                raise InputError(
                    f"{first.model} and {cell.model} read the log differently: give them the same [data] "
                    "with --set data.KEY=VALUE"
                )
        if len({cell.path for cell in cells}) < len(cells):
            raise InputError("two recipes have the same name: rename one of them")


def measure_missing(plan: Plan, stop: Callable[[], bool]) -> list[Cell] | None:
    """Measure the cells that are not there, or of another recipe. Returns all, or None after a stop."""
    cells = plan.list_cells()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    recipe = cells[0].recipe.data
    log = read_log(plan.data, recipe)
    require_log(plan.out, plan.name, log.fingerprint, recipe)
    missing = [cell for cell in cells if not cell.is_finished()]
    metadata = read_items(plan.items, recipe.ids) if plan.items else None
    for cell in missing:  # hours may lie before the first that lacks a column
        learn_columns(cell.recipe.model, metadata, log.vocabulary)
    console.print(f"{plan.name}: {len(cells) - len(missing)} of {len(cells)} cells are measured, {len(missing)} to go")
    begun = time.monotonic()
    for done, cell in enumerate(missing):
        if stop():
            return None
        console.print(
            f"cell {done + 1} of {len(missing)}: {cell.model}, {cell.protocol}, seed {cell.seed}; run {cell.run}"
        )
        document = _measure(plan, cell, stop)
        if document is None:
            return None
        spent = time.monotonic() - begun
        left = spent / (done + 1) * (len(missing) - done - 1)
        found = document["metrics"][PRIMARY_METRIC]["value"]
        console.print(f"  {PRIMARY_METRIC} {found:.4f}; {say_minutes(spent)} spent, about {say_minutes(left)} left")
    return cells


def _measure(plan: Plan, cell: Cell, stop: Callable[[], bool]) -> Document | None:
    # No baselines: they have cells of their own.
    results = fit(cell.recipe, plan.data, cell.run, resume=True, items=plan.items, stop=stop, baselines=())
    if results is None:
        return None
    run = Run.open(cell.run)
    task, scorer, split = prepare_run(run, plan.data, cell.recipe.data, PROTOCOLS[cell.protocol], seed=SEED)
    today = read_evaluation(results) == number_evaluation(cell.protocol)
    if cell.protocol == results["protocol"] and today:  # fit has asked just these
        metrics, ranks = results["models"][run.recipe.name], run.read_ranks()
    else:
        scores = evaluate_task(scorer, task)
        metrics, ranks = describe_scores(scores, task.seed), (scores.ranks.greater, scores.ranks.ties)
    discounted = evaluate_discounted(scorer, task, split) if isinstance(scorer, NetworkScorer) else None
    document = {
        "model": cell.model,
        "kind": name_kind(cell.recipe),
        "data": {
            "name": cell.data,
            **{key: run.config["data"][key] for key in ("fingerprint", "users", "items", "events")},
        },
        "protocol": cell.protocol,
        "seed": cell.seed,
        "questions": len(task.questions),
        **describe_task(task),
        "metrics": metrics,
        "targets": describe_targets(task, {"metrics": measure_ranks(*ranks)}, {}),
        **({} if discounted is None else {"discounted": discounted}),
        "epochs": results["epochs"],
        "training_seconds": results["training_seconds"],
        # A run that ended before this was measured lacks it.
        **{key: results[key] for key in ("training_cpu_seconds",) if key in results},
        "parameters": _count_parameters(scorer),
        "ms_per_request": round(time_request(scorer, task), 3),
        "recipe": cell.recipe.to_dict(),
        "environment": run.config["environment"],
        "measured_at": f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    cell.write(document, *ranks)
    return document


def _count_parameters(scorer: Scorer) -> int:
    if not isinstance(scorer, NetworkScorer):
        return 0
    return sum(weight.numel() for weight in scorer.network.parameters())


@torch.inference_mode()
def time_request(scorer: Scorer, task: EvaluationTask) -> float:
    """Milliseconds that ranking the ten best unseen items of one history takes here, the quickest of several.

    In this process, by PyTorch or numpy: what models cost beside each other, not what the service needs.
    """
    times = []
    for row in range(min(_REQUESTS, len(task.questions))):
        history = task.questions.histories.select(slice(row, row + 1))
        begun = time.perf_counter()
        scores = scorer.score(history)
        remove_seen(scores, history)
        scores.topk(min(10, scorer.item_count)).indices.cpu()  # a GPU has answered when the answer is here
        times.append(1000 * (time.perf_counter() - begun))
    return min(times)

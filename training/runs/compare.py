"""Compare runs on the same questions: intervals, and paired differences between runs."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.split import Questions
from training.errors import InputError, RunError
from training.evaluation.metrics import PRIMARY_METRIC, measure_ranks
from training.evaluation.protocol import PROTOCOLS, EvaluationTask
from training.evaluation.results import SHOWN, describe_values, format_row, head_table, is_beyond_chance
from training.recipe import DataRecipe
from training.recipe_models import BASELINES, BaselineRecipe
from training.runs.evaluate import evaluate_baseline, evaluate_run, name_protocol
from training.runs.run import Run

Values = Mapping[str, NDArray[np.float64]]


def compare_runs(runs: Sequence[Run], seed: int, *, average_seeds: bool = False) -> dict[str, Any]:
    """Compare the stored test results of finished runs. Raises RunError unless they can be paired.

    With `average_seeds` runs that differ by their seed alone count as one: each user's metrics are averaged over them.
    """
    first, *others = runs
    for run in others:
        for what, key in (("log", "fingerprint"), ("protocol", "protocol"), ("number of users", "users")):
            if _identify(run)[key] != _identify(first)[key]:
                raise RunError(
                    f"{first.path} and {run.path} were tested on another {what}: give --data FILE (and --protocol) "
                    "to test them again"
                )
    _require_one_evaluation(runs)
    values = {str(run.path): measure_ranks(*run.read_ranks()) for run in runs}
    seeds = _group_seeds(list(values), runs) if average_seeds else {}
    return _describe(values, runs, seeds, protocol=first.read_results()["protocol"], seed=seed)


def _identify(run: Run) -> dict[str, object]:
    results = run.read_results()
    return {
        "fingerprint": run.config["data"]["fingerprint"],
        "protocol": results["protocol"],
        "users": results["users"],
    }


def _require_one_evaluation(runs: Sequence[Run]) -> None:
    """Refuse to pair results from before and after evaluation was changed, where it matters. Raises RunError.

    It matters to a network alone where targets are repeated, and to what counts everywhere (results.py, EVALUATION).
    """
    results = [run.read_results() for run in runs]
    repeated = any(found.get("targets", {}).get("share") for found in results)
    counting = any(run.recipe.rules_per_item or isinstance(run.recipe.model, BaselineRecipe) for run in runs)
    if (repeated or counting) and len({found.get("evaluation", 1) for found in results}) > 1:
        raise RunError(
            "some of these runs were tested before repeated targets and a user's own history were treated as they are "
            "now: give --data FILE to test them again"
        )


def compare_on(
    names: Sequence[str], data: Path, protocol_name: str | None, seed: int, *, average_seeds: bool = False
) -> dict[str, Any]:
    """Evaluate runs and baselines on a log, under one protocol. Raises RunError unless they can be paired.

    `average_seeds` is that of `compare_runs`.
    """
    names = [name if name in BASELINES else str(Path(name)) for name in names]
    runs = {name: Run.open(Path(name)) for name in names if name not in BASELINES}
    if len({run.vocabulary.to_bytes() for run in runs.values()}) > 1:
        raise RunError(f"{' and '.join(runs)} were not trained on the same items, so they cannot be compared")
    recipe = next((run.recipe.data for run in runs.values()), DataRecipe())
    protocol = PROTOCOLS[protocol_name or name_protocol(recipe)]
    # Baselines count what the first run was trained on, whatever the protocol's authors let them count.
    counted = replace(recipe, held_out_users=recipe.held_out_users or sys.maxsize)
    tasks: dict[str, EvaluationTask] = {}
    values: dict[str, Values] = {}
    for name in names:
        if name in runs:
            tasks[name], scores = evaluate_run(runs[name], data, runs[name].recipe.data, protocol, seed=seed)
        else:
            baseline = BASELINES[name](name=name)
            tasks[name], scores = evaluate_baseline(baseline, data, counted, protocol, seed=seed, train_only=True)
        values[name] = scores.values
        if not _ask_the_same(tasks[names[0]].questions, tasks[name].questions):
            raise RunError(f"{names[0]} and {name} have different test questions: compare runs of one log and split")
    seeds = _group_seeds(names, list(runs.values())) if average_seeds else {}
    return _describe(values, list(runs.values()), seeds, protocol=protocol.name, seed=seed)


def _ask_the_same(some: Questions, others: Questions) -> bool:
    return np.array_equal(some.targets, others.targets) and np.array_equal(some.histories.ends, others.histories.ends)


def _group_seeds(names: Sequence[str], runs: Sequence[Run]) -> dict[str, list[str]]:
    """Those that differ by their seed alone, by the first of them. Raises InputError where one group is all."""
    recipes = {str(run.path): replace(run.recipe, train=replace(run.recipe.train, seed=0)) for run in runs}
    seeds: dict[str, list[str]] = {}
    for name in names:
        recipe = recipes.get(name)  # a baseline has none
        leader = next((other for other in seeds if recipe is not None and recipes.get(other) == recipe), name)
        seeds.setdefault(leader, []).append(name)
    if len(seeds) == 1:
        raise InputError("--average-seeds: all runs are seeds of one recipe: add a run of another one")
    return seeds


def _describe(
    values: Mapping[str, Values], runs: Sequence[Run], seeds: Mapping[str, list[str]], *, protocol: str, seed: int
) -> dict[str, Any]:
    """The document; where there are groups of `seeds`, each stands there as one under its first one's name."""
    if seeds:
        values = {
            leader: {metric: np.mean([values[name][metric] for name in names], axis=0) for metric in values[leader]}
            for leader, names in seeds.items()
        }
        runs = [run for run in runs if str(run.path) in seeds]
    first, *others = values
    return {
        "protocol": protocol,
        "seed": seed,
        "users": len(values[first][PRIMARY_METRIC]),
        "models": {name: describe_values(value, seed) for name, value in values.items()},
        "against": first,
        "differences": {
            name: describe_values(
                {metric: value - values[first][metric] for metric, value in values[name].items()}, seed
            )
            for name in others
        },
        "seeds": dict(seeds),
        "settings": _find_differing_settings(runs),
        "epochs": {str(run.path): epochs for run in runs if (epochs := run.read_epochs())},
    }


def _find_differing_settings(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Keys of the recipes that are not the same in all runs, each with its value by run."""
    flat = {
        str(run.path): {
            f"{section}.{key}": value for section, keys in run.recipe.to_dict().items() for key, value in keys.items()
        }
        for run in runs
    }
    keys = dict.fromkeys(key for settings in flat.values() for key in settings)
    by_key = {key: {name: settings.get(key) for name, settings in flat.items()} for key in keys}
    return {key: by_run for key, by_run in by_key.items() if len({repr(value) for value in by_run.values()}) > 1}


def require_distinct(names: Sequence[str]) -> None:
    """Refuse a comparison of one with itself. Raises InputError."""
    if len(names) == 1:
        raise InputError("compare needs at least two runs")
    if len({name if name in BASELINES else str(Path(name).resolve()) for name in names}) < len(names):
        raise InputError("compare takes each run only once")


def format_comparison(document: Mapping[str, Any]) -> str:
    """Metrics, paired differences and differing settings as text."""
    width = max(len(name) for name in document["models"]) + 2
    lines = head_table(document["protocol"], document["users"], width)
    lines += [format_row(name, metrics, width) for name, metrics in document["models"].items()]
    lines += ["", f"above {document['against']}, over the same users"]
    for name, difference in document["differences"].items():
        clear = [metric for metric in SHOWN if is_beyond_chance(difference[metric], document["users"])]
        verdict = f"beyond chance: {', '.join(clear)}" if clear else "chance can explain all of it"
        lines.append(f"{format_row(name, difference, width, sign='+')}  {verdict}")
    if document["seeds"]:
        lines += ["", "seeds averaged user by user"]
        lines += [f"{leader}: {', '.join(names)}" for leader, names in document["seeds"].items()]
    if document["settings"]:
        lines += ["", "settings that differ"]
        for key, by_run in document["settings"].items():
            lines.append(f"{key}: " + ", ".join(f"{name} {value}" for name, value in by_run.items()))
    return "\n".join(lines)

"""`evaluate`: how good a run or a simple model is on a log."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from nextitem.training.frames import Data, DataFile
from nextitem.training.recipes import write_settings
from nextitem.training.tables import tabulate
from training.arguments.names import PROTOCOL_NAMES, find_protocol_code
from training.errors import InputError
from training.evaluation.protocol import PROTOCOLS, SEED, Protocol
from training.evaluation.results import describe_evaluation, format_results
from training.recipe import make_recipe
from training.recipe_models import BASELINES, BaselineRecipe
from training.runs.evaluate import evaluate_baseline, evaluate_run, name_protocol
from training.runs.run import Run


@dataclass(frozen=True)
class Evaluation:
    """What `nextitem-train evaluate` prints: `str()` of it is that table, `document` what `--json` gives."""

    model: str
    document: dict[str, Any]

    @property
    def metrics(self) -> pl.DataFrame:
        """Columns model, metric, value, low, high: means with their 95 % intervals."""
        return tabulate({self.model: self.document["metrics"]})

    def __str__(self) -> str:
        return format_results(self.document, {self.model: self.document["metrics"]})

    __repr__ = __str__


def evaluate(
    model: str | os.PathLike[str],
    data: Data,
    *,
    protocol: str | None = None,
    seed: int = SEED,
    settings: Mapping[str, object] | None = None,
) -> Evaluation:
    """Measure a baseline by its name (pop, markov, rules, ...), or the run in a folder, on the test events of a log.

    `protocol` is one by name or code (docs/reference/protocols.md), by default that of the run, else `full`.
    `settings` are keys of [data], and of a baseline's [model], such as {"data.split": "time"}. Raises InputError.
    """
    file, written = DataFile(data), write_settings(settings)
    name = str(model)
    if name not in BASELINES:
        return evaluate_fitted(Run.open(Path(model)), file, protocol=protocol, seed=seed, settings=written)
    recipe = make_recipe({"model": {"name": name}}, written)
    assert isinstance(recipe.model, BaselineRecipe)  # noqa: S101 - the name is one of BASELINES
    task, scores = evaluate_baseline(
        recipe.model,
        file.path,
        recipe.data,
        find_protocol(protocol or name_protocol(recipe.data)),
        seed=seed,
        train_only=False,
    )
    return Evaluation(name, describe_evaluation(scores, task))


def evaluate_fitted(
    run: Run, file: DataFile, *, protocol: str | None, seed: int, settings: list[str] | None = None
) -> Evaluation:
    """The same of an opened run. Raises InputError."""
    recipe = make_recipe({"data": run.recipe.to_dict()["data"]}, settings or ()).data
    asked = find_protocol(protocol or name_protocol(run.recipe.data))
    task, scores = evaluate_run(run, file.path, recipe, asked, seed=seed)
    return Evaluation(run.recipe.name, describe_evaluation(scores, task))


def find_protocol(name: str) -> Protocol:
    """A protocol by its code or name. Raises InputError."""
    code = find_protocol_code(name)
    if code is None:
        raise InputError(f"there is no protocol {name!r}: known are {', '.join(PROTOCOL_NAMES.values())}")
    return PROTOCOLS[code]

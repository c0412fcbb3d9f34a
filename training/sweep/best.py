"""best.toml: the recipe of the best trial, which `fit` takes as it is."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from training.evaluation.metrics import PRIMARY_METRIC
from training.recipe import Recipe
from training.sweep.plan import Plan
from training.sweep.space import show_value
from training.sweep.study import Trial


def find_best(trials: Sequence[Trial]) -> Trial | None:
    """The finished trial with the highest value, the first of several; None before one is finished."""
    finished = [trial for trial in trials if trial.value is not None]
    return max(finished, key=lambda trial: trial.value or 0.0, default=None)


def format_best(plan: Plan, best: Trial) -> str:
    """The content of best.toml."""
    changed = ", ".join(f"{key} = {show_value(value)}" for key, value in best.values.items())
    heading = (
        f"# The best of a sweep of {plan.name}: trial {best.number + 1}, {changed}.\n"
        f"# {PRIMARY_METRIC} {best.value:.4f} on the validation events; the test was not looked at.\n"
        f"#   {format_command(plan)}\n"
    )
    return heading + format_recipe(plan.make_recipe(best.values))


def format_command(plan: Plan) -> str:
    """The command that trains the best recipe and tests it."""
    words = ["nextitem-train", "fit", str(plan.out / "best.toml"), "--data", str(plan.data)]
    if plan.items is not None:
        words += ["--items", str(plan.items)]
    return shlex.join([*words, "--out", "runs/best"])


def format_recipe(recipe: Recipe) -> str:
    """A recipe as TOML: the keys that do not have their default values. `read_recipe` gives the same recipe."""
    sections = recipe.list_choices()
    sections["model"] = {"name": recipe.model.name, **sections["model"]}
    return "".join(_format_section(name, entries) for name, entries in sections.items() if entries)


def _format_section(name: str, entries: Mapping[str, Any]) -> str:
    lines = "".join(f"{key} = {_format(value)}\n" for key, value in entries.items())
    return f"\n[{name}]\n{lines}"


def _format(value: object) -> str:
    """JSON writes texts, numbers, booleans and lists as TOML does. An absent key is none that is written."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

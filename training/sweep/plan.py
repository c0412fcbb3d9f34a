"""A sweep as it is asked for: the recipe, what is tried of it, and how long. Nothing here imports torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training.errors import InputError, RecipeError
from training.recipe import Recipe, make_recipe, read_recipe
from training.recipe_models import require
from training.sweep.presets import find_preset
from training.sweep.space import (
    Parameter,
    Value,
    check_space,
    count_combinations,
    find_own,
    list_combinations,
    read_parameter,
    to_json,
)

TRIALS = 20
"""How many trials an optimizer has unless `--trials` says otherwise; a grid has all of its combinations."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sweep: everything but `trials` and `minutes` stays what it was when the same folder goes on."""

    recipe: Recipe
    """What every trial shares."""
    name: str
    """The recipe's, as it was given."""
    space: tuple[Parameter, ...]
    grid: bool
    """Every combination in its order, without pruning, instead of an optimizer's choice."""
    combinations: tuple[dict[str, Value], ...] | None
    """All trials that there can be, where they are no more than `trials` or a grid; None: an optimizer chooses."""
    left_out: Sequence[str]
    """Why some combinations are none of them."""
    data: Path
    items: Path | None
    out: Path
    trials: int
    minutes: float | None
    prune: bool

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(parameter.key for parameter in self.space)

    def list_settings(self, values: Mapping[str, Value]) -> list[str]:
        """What `--set` would be given for the values of a trial."""
        return [
            setting
            for parameter in self.space
            if parameter.key in values
            for setting in parameter.list_settings(values[parameter.key])
        ]

    def make_recipe(self, values: Mapping[str, Value]) -> Recipe:
        """The recipe of a trial. Raises RecipeError where its values do not go together."""
        recipe = change_recipe(self.recipe, self.list_settings(values))
        require(
            recipe.train.item_init != "vectors",
            "train.item_init",
            "random or ppmi in a sweep: --item-vectors is an option of fit",
        )
        return recipe

    def find_own(self) -> dict[str, Value] | None:
        """The values that the recipe has itself, where all of them are among those that are tried."""
        found = {parameter.key: find_own(parameter, self.recipe) for parameter in self.space}
        return {key: own[0] for key, own in found.items()} if all(found.values()) else None

    def find_folder(self, number: int) -> Path:
        """The run of a trial, trials counted from 0."""
        return self.out / "trials" / f"{number + 1:03}"

    def to_json(self) -> dict[str, Any]:
        """What must stay the same for a sweep to go on, as sweep.json holds it."""
        return {
            "recipe": self.recipe.to_dict(),
            "space": [to_json(parameter) for parameter in self.space],
            "grid": self.grid,
            "prune": self.prune,
        }


def change_recipe(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """A recipe with settings over it. Raises RecipeError."""
    return make_recipe(recipe.list_choices(), settings, announce=False)


def make_plan(
    recipe_name: str,
    settings: Sequence[str],
    *,
    tried: Sequence[str],
    preset: str | None,
    grid: bool,
    data: Path,
    items: Path | None,
    out: Path,
    trials: int | None,
    minutes: float | None,
    prune: bool,
) -> Plan:
    """Check a sweep as the command line gives it. Raises InputError."""
    recipe = read_recipe(recipe_name, settings)
    if recipe.data.split == "none":
        raise InputError("data.split = none leaves nothing to validate on: a sweep needs leave-one-out or time")
    space = [find_preset(preset, recipe)] if preset else []
    space += [read_parameter(text, recipe) for text in tried]
    if not space:
        raise InputError("nothing to try: give --try section.key=a,b (more than once for more keys) or --preset NAME")
    grid = grid or preset is not None
    plan = Plan(
        recipe=recipe,
        name=recipe_name,
        space=tuple(space),
        grid=grid,
        combinations=None,
        left_out=(),
        data=data,
        items=items,
        out=out,
        trials=trials or TRIALS,
        minutes=minutes,
        prune=prune and not grid,
    )
    check_space(space, plan.make_recipe)
    most = count_combinations(space)
    if not grid and (most is None or most > plan.trials):
        return plan
    combinations, left_out = _keep_different(plan)
    return replace(plan, combinations=combinations, left_out=left_out, trials=trials or len(combinations))


def _keep_different(plan: Plan) -> tuple[tuple[dict[str, Value], ...], list[str]]:
    """The combinations that make recipes, of those that make the same one the first; and why others make none."""
    kept: list[dict[str, Value]] = []
    recipes: list[Recipe] = []
    faults: dict[str, None] = {}
    for combination in list_combinations(plan.space):
        try:
            recipe = plan.make_recipe(combination)
        except RecipeError as error:
            faults[str(error)] = None
            continue
        if recipe not in recipes:
            kept.append(combination)
            recipes.append(recipe)
    return tuple(kept), list(faults)

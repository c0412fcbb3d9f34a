"""Who is measured, under which terms, and at which marks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks.training.rounds import OURS
from benchmarks.training.terms import Terms
from training.errors import RecipeError
from training.recipe import read_recipe

NETWORKS = ("bert4rec", "sasrec")


@dataclass(frozen=True)
class Turn:
    """One network of one system."""

    network: str
    system: str
    terms: Terms


def plan_marks(minutes: float, count: int) -> tuple[float, ...]:
    """CPU seconds at which to measure: the last ones of so many minutes, half of them, a quarter, and so on."""
    return tuple(round(60 * minutes / 2**step, 1) for step in reversed(range(count)))


def plan_turns(networks: Sequence[str], systems: Sequence[str], *, sizes: Terms, recipes: dict[str, str]) -> list[Turn]:
    """A turn of every system for each network; `sizes` holds what all have in common.

    Ours trains by the recipe named for the network, the others by their own defaults. Raises RecipeError.
    """
    return [
        Turn(network, system, make_terms(network, system, sizes, recipes[network]))
        for network, system in product(networks, systems)
    ]


def make_terms(network: str, system: str, sizes: Terms, recipe: str) -> Terms:
    """The terms of one turn: equal sizes and marks, and each library's defaults for the rest. Raises RecipeError."""
    own = dict.fromkeys(("dropout", "mask_probability", "last_item_share", "batch_size", "learning_rate"))
    common = {key: value for key, value in vars(sizes).items() if key not in own}
    document = make_recipe(network, sizes, recipe) if system == OURS else None
    return Terms(**{**common, **own, "network": network, "recipe": document})


def make_recipe(network: str, sizes: Terms, name: str) -> dict[str, object]:
    """The recipe that ours trains by, with the sizes of all; its budget is the last mark. Raises RecipeError."""
    recipe = read_recipe(
        name,
        [
            *(f"model.{key}={getattr(sizes, key)}" for key in ("max_length", "width", "layers", "heads")),
            f"train.seed={sizes.seed}",
            "train.device=cpu",
            "train.precision=float32",
            f"train.budget_seconds={sizes.marks[-1]}",
        ],
    )
    if recipe.name != network:
        raise RecipeError(f"the recipe {name} is of {recipe.name}: a curve of {network} wants one of {network}")
    sections = recipe.to_dict()
    return {"model": sections["model"], "train": sections["train"]}

"""The names and numbers that trackers are told, the same for all of them."""

from collections.abc import Mapping
from typing import Any

from training.recipe import Recipe
from training.runs.progress import Epoch

Numbers = dict[str, float]


def list_parameters(recipe: Recipe) -> dict[str, Any]:
    """Every key of a recipe as `section.key`."""
    return {f"{section}.{key}": value for section, keys in recipe.to_dict().items() for key, value in keys.items()}


def list_epoch(epoch: Epoch) -> Numbers:
    """What an epoch came to. `epoch` itself is among it, since trackers count in updates."""
    return {
        "epoch": epoch.epoch,
        "train/epoch_loss": epoch.loss,
        "train/learning_rate": epoch.learning_rate,
        "train/tokens_per_second": epoch.tokens_per_second,
        "train/epoch_seconds": epoch.seconds,
        **{f"validation/{name}": value for name, value in epoch.validation.items()},
    }


def list_results(results: Mapping[str, Any], name: str) -> Numbers:
    """What the test of a run came to: the means of its model."""
    return {
        "kept_epoch": results["kept_epoch"],
        **{f"test/{metric}": found["value"] for metric, found in results["models"][name].items()},
    }

"""curves.png: how the loss fell and the validation rose."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator

from training.evaluation.results import SHOWN
from training.plots.style import begin_picture, style_line, tidy, to_png
from training.recipe import Recipe

_LOSSES = {
    "softmax": "cross-entropy over all items",
    "sampled_softmax": "cross-entropy over the target and {negatives} negatives",
    "gbce": "gBCE over {negatives} negatives",
    "bce": "binary cross-entropy over {negatives} negatives",
    "bpr_max": "BPR-max over {negatives} negatives",
    "top1_max": "TOP1-max over {negatives} negatives",
    "bpr": "pairwise ranking against {negatives} negatives",
}


def draw_curves(epochs: Sequence[Mapping[str, Any]], kept_epoch: int, recipe: Recipe) -> bytes:
    """Draw loss and validation by epoch, from the lines of metrics.jsonl, as a PNG."""
    figure = begin_picture(11, 4.2)
    left, right = figure.subplots(1, 2)
    numbers = [line["epoch"] for line in epochs]
    left.plot(numbers, [line["loss"] for line in epochs], **style_line(6, len(numbers)))
    left.set(title=f"Training: {_name_loss(recipe)}", ylabel=f"loss, nats {_name_place(recipe)}")
    for place, name in enumerate(SHOWN):
        heights = [line["validation"][name] for line in epochs]
        right.plot(numbers, heights, label=name, **style_line(place, len(numbers)))
    right.axvline(kept_epoch, color="0.4", linestyle=":", label=f"kept: epoch {kept_epoch}")
    right.set(title="Validation: all items ranked, seen ones removed", ylabel="mean over users")
    right.set_ylim(bottom=0)
    right.legend(frameon=False)
    tidy(left, right)
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return to_png(figure)


def _name_loss(recipe: Recipe) -> str:
    return _LOSSES[recipe.train.loss].format(negatives=recipe.train.negatives)


def _name_place(recipe: Recipe) -> str:
    return "a masked item" if recipe.model.name in {"bert4rec", "cbow", "skip-gram"} else "an item"

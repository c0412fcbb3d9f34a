"""Which tokens of a batch the Cloze task hides."""

import numpy as np
from numpy.typing import NDArray

from training.recipe import TrainRecipe


def draw_masks(lengths: NDArray[np.int32], T: int, recipe: TrainRecipe, draw: np.random.Generator) -> NDArray[np.bool_]:
    """Which tokens (B, T) of right-aligned rows to mask: a share of each row, at least one, or only the last.

    A row of n tokens has max(1, round(n * probability)) masks at random positions, as in the authors' code, or
    `mask_count`: 1 is the paper's "1 mask" (Sun et al. 2019, table 3); neither goes above `max_masks`, their code's
    max_predictions_per_seq. A sample that masks the last item alone has the shape of the question asked when serving.
    """
    B = len(lengths)
    real = np.arange(T) >= T - lengths[:, None]
    keys = np.where(real, draw.random((B, T)), 2.0)
    if recipe.mask_count is None:
        wanted = np.maximum(1, np.rint(lengths * recipe.mask_probability)).astype(np.int64)
    else:
        wanted = np.minimum(lengths, recipe.mask_count).astype(np.int64)
    if recipe.max_masks is not None:
        wanted = np.minimum(wanted, recipe.max_masks)
    threshold = np.take_along_axis(np.sort(keys, axis=1), wanted[:, None] - 1, axis=1)
    masked: NDArray[np.bool_] = keys <= threshold
    last_only = draw.random(B) < recipe.last_item_share
    masked[last_only] = False
    masked[last_only, -1] = True
    return masked

"""The count-based baselines by name."""

import numpy as np
from numpy.typing import NDArray

from training.baselines.chains import Markov, RulesBaseline
from training.baselines.neighbours import ItemNeighbours, SessionNeighbours, gather_sessions
from training.baselines.popular import Popularity, RecentPopularity
from training.data.histories import Histories
from training.evaluation.ranking import Scorer
from training.recipe_models import (
    BaselineRecipe,
    ItemNeighboursRecipe,
    RecentRecipe,
    RulesBaselineRecipe,
    SessionNeighboursRecipe,
)


def make_baseline(
    recipe: BaselineRecipe,
    train: Histories,
    item_count: int,
    times_ms: NDArray[np.int64] | None,
    *,
    leave_own_out: bool = True,
) -> Scorer:
    """Count the training histories; `times_ms` are of the log that they are slices of. Raises DataError.

    What follows what, and who is like whom, is counted of others than the user who asks, unless `leave_own_out` is
    off. Popularity is everybody's.
    """
    own = {"leave_own_out": leave_own_out}
    match recipe:
        case RecentRecipe():
            return RecentPopularity(train, item_count, times_ms, days=recipe.days)
        case RulesBaselineRecipe():
            return RulesBaseline(train, item_count, reach=recipe.reach, decay=recipe.decay, window=recipe.window, **own)
        case SessionNeighboursRecipe():
            sizes = {"neighbours": recipe.neighbours, "candidates": recipe.sessions, "window": recipe.window}
            return SessionNeighbours(gather_sessions(train, item_count, times_ms, **sizes), train, **own)
        case ItemNeighboursRecipe():
            return ItemNeighbours(train, item_count, neighbours=recipe.neighbours, window=recipe.window, **own)
        case _:
            return Markov(train, item_count, **own) if recipe.name == "markov" else Popularity(train, item_count)

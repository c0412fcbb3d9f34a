"""The count-based baselines as what a bundle can hold (model/contract/counted.py): counted from all that is given.

Of each item the FOLLOWERS weightiest rules are kept (model/contract/rules.py); offline all of them count. What
`session-knn` ranks by are whole histories, which are no counts of items: a service has it as `neighbours`.
"""

import numpy as np
from numpy.typing import NDArray

from model.contract.counted import Counted, make_no_rules
from training.baselines.chains import count_pairs
from training.baselines.neighbours import ItemNeighbours
from training.baselines.popular import RecentPopularity
from training.baselines.rules import gather_rules, keep_weightiest
from training.data.histories import Histories
from training.data.split import count_items
from training.recipe_models import (
    BaselineRecipe,
    ItemNeighboursRecipe,
    RecentRecipe,
    RulesBaselineRecipe,
    SessionNeighboursRecipe,
)

_ITEMS_AT_ONCE = 1000


def count_for_service(
    recipe: BaselineRecipe, histories: Histories, item_count: int, times_ms: NDArray[np.int64] | None
) -> Counted | None:
    """Count the histories, whose times `times_ms` are, for a bundle; None for `session-knn`. Raises DataError."""
    V = item_count
    popularity = count_items(histories, V).astype(np.float64)
    prior = _bring_below_one(popularity, 1.0)
    match recipe:
        case SessionNeighboursRecipe():
            return None
        case RecentRecipe():
            recent = RecentPopularity(histories, V, times_ms, days=recipe.days).counts
            return Counted(prior=_bring_below_one(recent, 1 / (popularity.sum() + 1)), rules=make_no_rules(V))
        case RulesBaselineRecipe():
            sizes = {"reach": recipe.reach, "window": recipe.window}
            return Counted(prior=prior, rules=gather_rules(histories, V, decay=recipe.decay, **sizes))
        case ItemNeighboursRecipe():
            similar = _list_similar(ItemNeighbours(histories, V, neighbours=recipe.neighbours, window=recipe.window))
            rules = keep_weightiest(*similar, V, decay=1.0, window=recipe.window, most=recipe.neighbours)
            return Counted(prior=prior, rules=rules, distinct=True)
        case _ if recipe.name == "markov":
            first, then, counts = count_pairs(histories, V)
            rules = keep_weightiest(first, then, counts.astype(np.float64), V, decay=1.0, window=1)
            return Counted(prior=prior, rules=rules)
        case _:
            return Counted(prior=prior, rules=make_no_rules(V))


def _bring_below_one(values: NDArray[np.float64], least: float) -> NDArray[np.float32]:
    """Values of at least 0 (V), in their order, between 0 and 1; `least` is the smallest one that matters."""
    logs = np.log1p(values / least)
    below: NDArray[np.float32] = (logs / (logs.max() + 1)).astype(np.float32)
    return below


def _list_similar(
    scorer: ItemNeighbours,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """What is similar to each item, some items at a time: the pairs of all items may be more than memory holds."""
    items = np.arange(1, scorer.item_count + 1)
    parts = [scorer.list_similar(items[at : at + _ITEMS_AT_ONCE]) for at in range(0, len(items), _ITEMS_AT_ONCE)]
    first, then, cosines = (np.concatenate([part[place] for part in parts]) for place in (0, 1, 2))
    return first, then, cosines

"""Users and items that occur too seldom to learn from, left out as the papers do."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from training.recipe import DataRecipe


def drop_rare(rows: pl.DataFrame, recipe: DataRecipe) -> pl.DataFrame:
    """Rows whose user and item both occur often enough, columns user and item.

    A round counts users and items in what is left and drops rows by both counts at once. Rounds go on until nothing
    changes, which leaves an n-core, or until there were `data.filter_rounds`: one is what SASRec's preparation does.
    """
    if recipe.min_user_events == recipe.min_item_events == 1:
        return rows
    users, items = _number(rows["user"]), _number(rows["item"])
    kept = np.ones(len(rows), dtype=bool)
    rounds = 0
    while recipe.filter_rounds is None or rounds < recipe.filter_rounds:
        often = np.bincount(users[kept], minlength=users.max(initial=0) + 1) >= recipe.min_user_events
        common = np.bincount(items[kept], minlength=items.max(initial=0) + 1) >= recipe.min_item_events
        left = kept & often[users] & common[items]
        if left.sum() == kept.sum():
            break
        kept = left
        rounds += 1
    return rows.filter(pl.Series(kept))


def _number(column: pl.Series) -> NDArray[np.int64]:
    """Number the values: equal ones get equal numbers, from 0."""
    codes: NDArray[np.int64] = column.cast(pl.Enum(column.unique())).to_physical().cast(pl.Int64).to_numpy()
    return codes

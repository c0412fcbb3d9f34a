"""Leaves events out of a log on request: repeated ones, those of robots, and those of rare users and items."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from training.errors import DataError
from training.logs.ids import USER
from training.logs.tables import ROW
from training.recipe import DataRecipe


def clean(rows: pl.DataFrame, recipe: DataRecipe) -> tuple[pl.DataFrame, list[str]]:
    """The rows that [data] keeps, and a sentence for each kind that it did not. Raises DataError."""
    said = []
    if recipe.duplicates == "drop":
        if "time" not in rows.columns:
            raise DataError("a log without times has no exact duplicates: set data.duplicates=keep")
        distinct = rows.unique([name for name in rows.columns if name != ROW], keep="first", maintain_order=True)
        if gone := len(rows) - len(distinct):
            said.append(
                f"{gone:,} of {len(rows):,} events repeat another one exactly and are left out (data.duplicates)"
            )
        rows = distinct
    if recipe.max_user_events is not None:
        counts = rows.group_by(USER).len()
        robots = counts.filter(pl.col("len") > recipe.max_user_events)
        if len(robots):
            said.append(
                f"{len(robots):,} of {len(counts):,} users have more than {recipe.max_user_events:,} events "
                f"({robots['len'].sum():,} of {len(rows):,}) and are left out (data.max_user_events)"
            )
            rows = rows.filter(~pl.col(USER).is_in(robots[USER].implode()))
    return drop_rare(rows, recipe), said


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

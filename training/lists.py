"""Offline lists: the best unseen items for many users at once."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from training.errors import Diverged, InputError
from training.evaluation import Scorer, remove_seen, show_batches
from training.examination import cut, make_scorer
from training.log import Log
from training.reader import read_log
from training.recipe import DataRecipe
from training.run import Run

_USERS_AT_ONCE = 256


def recommend(run: Run, data: Path, recipe: DataRecipe, users: Sequence[str] | None, k: int) -> pl.DataFrame:
    """Lists for users of a log by a run, for all when `users` is None. Raises InputError."""
    log = read_log(data, recipe, vocabulary=run.vocabulary)
    rows = np.arange(len(log.user_ids)) if users is None else _find_users(log, users)
    scorer = make_scorer(run, log, cut(log, recipe))
    if log.dropped:
        Console(stderr=True).print(
            f"{log.dropped} events of items that {run.path} does not know were left out",
            highlight=False,
            soft_wrap=True,
        )
    with show_batches("users", len(rows)) as ranked:
        return rank_lists(scorer, log, rows, k, on_users=ranked)


def _find_users(log: Log, users: Sequence[str]) -> NDArray[np.int64]:
    row_of = {user: row for row, user in enumerate(log.user_ids)}
    missing = [user for user in users if user not in row_of]
    if missing or not users:
        named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise InputError(f"the log has no user {named}" if missing else "--users names nobody")
    return np.array([row_of[user] for user in dict.fromkeys(users)], dtype=np.int64)


def rank_lists(
    scorer: Scorer, log: Log, users: NDArray[np.int64], k: int, *, on_users: Callable[[int], None]
) -> pl.DataFrame:
    """The k best unseen items of each user by their whole history: columns user, rank, item, score.

    A user who has seen almost everything gets fewer. `on_users` hears how many users each batch brought.
    """
    parts = []
    item_ids = np.array(log.vocabulary.item_ids)
    user_ids = np.array(log.user_ids)
    by_length = users[np.argsort(log.histories.lengths[users], kind="stable")]
    for begin in range(0, len(by_length), _USERS_AT_ONCE):
        batch = by_length[begin : begin + _USERS_AT_ONCE]
        histories = log.histories.select(batch)
        with torch.inference_mode():
            scores = scorer.score(histories)
            if not bool(torch.isfinite(scores).all()):
                raise Diverged("a score is no finite number: nothing can be ranked by it")
            remove_seen(scores, histories)
            best, columns = _take_best(scores, min(k, scorer.item_count))
        kept = np.isfinite(best)
        rows, ranks = np.nonzero(kept)
        parts.append(
            pl.DataFrame(
                {
                    "user": user_ids[batch[rows]],
                    "rank": ranks.astype(np.int32) + 1,
                    "item": item_ids[columns[kept]],
                    "score": best[kept].astype(np.float32),
                },
                schema={"user": pl.String, "rank": pl.Int32, "item": pl.String, "score": pl.Float32},
            )
        )
        on_users(len(batch))
    place = {log.user_ids[user]: order for order, user in enumerate(users)}
    lists = pl.concat(parts)
    return lists.sort(lists["user"].replace_strict(place, return_dtype=pl.Int64), "rank")


def _take_best(scores: Tensor, k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The k best columns of each row by falling score, equal scores by column: values and columns (B, k)."""
    values, columns = scores.topk(k, dim=1)
    cut = values[:, -1:]
    unsure = (scores == cut).sum(dim=1) > (values == cut).sum(dim=1)  # equal scores on both sides of the cut
    if bool(unsure.any()):
        again, order = scores[unsure].sort(dim=1, descending=True, stable=True)
        values[unsure], columns[unsure] = again[:, :k], order[:, :k]
    best, places = values.cpu().double().numpy(), columns.cpu().numpy()
    order_within = np.lexsort((places, -best), axis=1)
    return np.take_along_axis(best, order_within, axis=1), np.take_along_axis(places, order_within, axis=1)

"""Offline lists: the best unseen items for many users at once."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console

from training.data.interactions import Log
from training.errors import InputError
from training.evaluation.ranking import show_batches
from training.logs.reader import read_log
from training.publish.rankers import Ranker, choose_ranker
from training.recipe import DataRecipe
from training.runs.evaluate import cut, make_scorer
from training.runs.run import Run


def recommend(run: Run, data: Path, recipe: DataRecipe, users: Sequence[str] | None, k: int) -> pl.DataFrame:
    """Lists for users of a log by a run, for all when `users` is None. Raises InputError."""
    log = read_log(data, recipe, vocabulary=run.vocabulary)
    rows = np.arange(len(log.user_ids)) if users is None else _find_users(log, users)
    scorer = make_scorer(run, log, cut(log, recipe), leave_own_out=False)
    if log.dropped:
        Console(stderr=True).print(
            f"{log.dropped} events were left out: {run.path} does not know their items",
            highlight=False,
            soft_wrap=True,
        )
    with show_batches("users", len(rows)) as ranked:
        return rank_lists(choose_ranker(scorer, len(rows)), log, rows, k, on_users=ranked)


def _find_users(log: Log, users: Sequence[str]) -> NDArray[np.int64]:
    row_of = {user: row for row, user in enumerate(log.user_ids)}
    missing = [user for user in users if user not in row_of]
    if missing or not users:
        named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise InputError(f"the log has no user {named}" if missing else "--users is empty")
    return np.array([row_of[user] for user in dict.fromkeys(users)], dtype=np.int64)


def rank_lists(
    ranker: Ranker, log: Log, users: NDArray[np.int64], k: int, *, on_users: Callable[[int], None]
) -> pl.DataFrame:
    """The k best unseen items of each user by their whole history: columns user, rank, item, score.

    A user who has seen almost everything gets fewer. All ask when the log's newest event came. `on_users` is called
    with the number of users of each batch.
    """
    histories = log.histories
    if log.timestamps_ms is not None:
        histories = replace(histories, asked_ms=np.full(len(histories), log.timestamps_ms.max(initial=0)))
    by_length = users[np.argsort(histories.lengths[users], kind="stable")]
    owners, ranks, items, scores = [], [], [], []
    for begin in range(0, len(by_length), ranker.at_once):
        batch = by_length[begin : begin + ranker.at_once]
        best, indexes = ranker.rank(histories.select(batch), k)
        kept = np.isfinite(best)
        rows, columns = np.nonzero(kept)
        owners.append(batch[rows])
        ranks.append(columns)
        items.append(indexes[kept])
        scores.append(best[kept])
        on_users(len(batch))
    order_of = np.empty(len(log.user_ids), dtype=np.int64)
    order_of[users] = np.arange(len(users))
    owner, rank, item, score = (np.concatenate(parts) for parts in (owners, ranks, items, scores))
    order = np.lexsort((rank, order_of[owner]))
    return pl.DataFrame(
        {
            "user": pl.Series(log.user_ids).gather(owner[order]),
            "rank": rank[order].astype(np.int32) + 1,
            "item": pl.Series(log.vocabulary.item_ids).gather(item[order] - 1),
            "score": score[order].astype(np.float32),
        },
        schema={"user": pl.String, "rank": pl.Int32, "item": pl.String, "score": pl.Float32},
    )


def format_lists(lists: pl.DataFrame) -> str:
    """A line a recommendation, in columns as wide as the longest ids."""
    user_width = max((len(user) for user in lists["user"]), default=4)
    item_width = max((len(item) for item in lists["item"]), default=4)
    head = f"{'user':<{user_width}}  rank  {'item':<{item_width}}  score"
    rows = (
        f"{user:<{user_width}}  {rank:>4}  {item:<{item_width}}  {score:.4f}"
        for user, rank, item, score in lists.iter_rows()
    )
    return "\n".join([head, *rows])


def write_lists(lists: pl.DataFrame, path: Path) -> None:
    """Write a .parquet file, or CSV by any other name: whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        if path.suffix == ".parquet":
            lists.write_parquet(aside)
        else:
            lists.write_csv(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)

"""The 100 items that a sampled protocol ranks the target among, drawn for all questions at once."""

import numpy as np
from numpy.typing import NDArray

from training.data.histories import Histories
from training.data.split import Questions
from training.errors import DataError

_CELLS_AT_ONCE = 2**24
_DRAWS_PER_ITEM = 3
"""Enough draws of events, for most users, to give as many distinct items as are wanted."""


def draw_popular(
    questions: Questions, counts: NDArray[np.int64], wanted: int, rng: np.random.Generator, *, unseen: bool
) -> NDArray[np.int32]:
    """Distinct items other than the target, each drawn by its share of all events (B, wanted).

    `counts` (V) are of the whole log. With `unseen`, items of the history are not drawn either. This is the law of
    drawing without replacement until enough allowed items are there: what cannot be taken is passed over. Raises
    DataError when there are too few items.
    """
    negatives = np.zeros((len(questions), wanted), dtype=np.int32)
    item_of_event = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    step = int(np.clip(_CELLS_AT_ONCE // len(counts), 1, 4096))
    for begin in range(0, len(questions), step):
        part = questions.select(np.arange(begin, min(begin + step, len(questions))))
        refused = np.tile(counts == 0, (len(part), 1))
        if unseen:
            _mark(refused, part.histories)
        refused[np.arange(len(part)), part.targets - 1] = True
        _require_enough(refused, wanted)
        negatives[begin : begin + step] = 1 + _draw_distinct(item_of_event, counts, refused, wanted, rng)
    return negatives


def _draw_distinct(
    item_of_event: NDArray[np.int32],
    counts: NDArray[np.int64],
    refused: NDArray[np.bool_],
    wanted: int,
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Columns that are not refused, in the order in which random events first name them (B, wanted)."""
    B = len(refused)
    rows = np.arange(B)[:, None]
    drawn = item_of_event[rng.integers(len(item_of_event), size=(B, _DRAWS_PER_ITEM * wanted))]
    order = np.argsort(drawn, axis=1, kind="stable")
    ordered = np.take_along_axis(drawn, order, axis=1)
    again = np.zeros_like(ordered, dtype=bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    repeated = np.zeros_like(again)
    np.put_along_axis(repeated, order, again, axis=1)
    place = np.cumsum(~repeated & ~refused[rows, drawn], axis=1)
    taken = ~repeated & ~refused[rows, drawn] & (place <= wanted)
    result = np.zeros((B, wanted), dtype=np.int32)
    row, column = np.nonzero(taken)
    result[row, place[row, column] - 1] = drawn[row, column]
    found = taken.sum(axis=1)
    for lacking in np.flatnonzero(found < wanted):
        have = result[lacking, : found[lacking]]
        result[lacking, found[lacking] :] = _race(counts, refused[lacking], have, wanted - len(have), rng)
    return result


def _race(
    counts: NDArray[np.int64],
    refused: NDArray[np.bool_],
    have: NDArray[np.int32],
    wanted: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """The next columns in the same law, whatever share of the events they have: clocks that ring at rates `counts`.

    The order in which exponential clocks ring is that of drawing without replacement, and clocks forget, so that a
    race goes on where draws of events have stopped.
    """
    allowed = ~refused
    allowed[have] = False
    columns = np.flatnonzero(allowed)
    rings = rng.standard_exponential(len(columns)) / counts[columns]
    winners: NDArray[np.int64] = columns[np.argsort(rings)[:wanted]]
    return winners


def draw_uniform(
    questions: Questions, item_count: int, wanted: int, rng: np.random.Generator, *, but: Histories
) -> NDArray[np.int32]:
    """Items drawn evenly and with replacement from all that are not in `but`: (B, wanted). Raises DataError."""
    negatives = np.zeros((len(questions), wanted), dtype=np.int32)
    step = int(np.clip(_CELLS_AT_ONCE // item_count, 1, 4096))
    for begin in range(0, len(questions), step):
        part = but.select(slice(begin, begin + step))
        refused = np.zeros((len(part), item_count), dtype=bool)
        _mark(refused, part)
        _require_enough(refused, 1)
        rows, columns = np.nonzero(np.ones((len(part), wanted), dtype=bool))
        drawn = np.zeros((len(part), wanted), dtype=np.int32)
        while len(rows):
            tried = rng.integers(item_count, size=len(rows), dtype=np.int32)
            drawn[rows, columns] = tried
            lost = refused[rows, tried]
            rows, columns = rows[lost], columns[lost]
        negatives[begin : begin + step] = 1 + drawn
    return negatives


def _mark(refused: NDArray[np.bool_], histories: Histories) -> None:
    rows, items = histories.flatten()
    refused[rows, items - 1] = True


def _require_enough(refused: NDArray[np.bool_], wanted: int) -> None:
    poor = int(((~refused).sum(axis=1) < wanted).sum())
    if poor:
        raise DataError(
            f"{poor} or more users have fewer than {wanted} items that this protocol can draw: the log has "
            "too few items for it; protocol full (P2) ranks all items"
        )

"""Sequential rules: what soon followed what in the training histories, whole or cut to the weightiest of each item."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from model.contract.rules import DECAY, FOLLOWERS, WINDOW, Rules
from model.contract.rules import MOST_RULES as MOST_PUBLISHED
from model.nets.rules import SequentialRules
from training.baselines.sparse_rows import count_within, find_highest
from training.data.histories import Histories
from training.errors import RecipeError

MOST_RULES = 2**27
"""A GiB of indexes and weights: a bundle's graph, which holds them, may have two."""
_FINE = 2**30
REACH = 20
"""How many places apart two items of a history may stand to make a rule."""


def list_pairs(
    histories: Histories, reach: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], float]]:
    """The rules of each history, by distance: rows, items i and j that differ, and the weight 1/s for s places.

    Weights are whole multiples of 2 ** -30, so that sums of them are exact: what was added can be taken off again.
    """
    rows, items = histories.flatten()
    for step in range(1, reach + 1):
        kept = (rows[step:] == rows[:-step]) & (items[step:] != items[:-step])
        yield rows[step:][kept], items[:-step][kept], items[step:][kept], round(_FINE / step) / _FINE


def gather_pairs(
    histories: Histories, reach: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """The same in four arrays, of few histories."""
    pairs = list(list_pairs(histories, reach))
    rows, first, then = (np.concatenate([pair[place] for pair in pairs]) for place in (0, 1, 2))
    return rows, first, then, np.concatenate([np.full(len(pair[0]), pair[3]) for pair in pairs])


def count_rules(train: Histories, item_count: int, *, reach: int = REACH) -> sparse.csr_array:
    """Count every rule i -> j, row i for the item of index i, column j - 1 (V + 1, V).

    It counts 1/s whenever j came s places after i in a training history, for s up to `reach` (Ludewig & Jannach 2018,
    "SR").
    """
    shape = (item_count + 1, item_count)
    counts = sparse.csr_array(shape)
    for _, first, then, weight in list_pairs(train, reach):
        counts = counts + sparse.csr_array((np.full(len(first), weight), (first, then - 1)), shape=shape)
    return counts


def scale_rules(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the rules of an item are weighed by, given what they count together: frequent ones do not outvote rare."""
    scales: NDArray[np.float64] = np.maximum(totals, 1) ** -0.5
    return scales


def gather_rules(
    train: Histories, item_count: int, *, reach: int = REACH, decay: float = DECAY, window: int = WINDOW
) -> Rules:
    """The weightiest rules of each item, for a bundle: as many of each as its size allows, equal ones by index."""
    counts = count_rules(train, item_count, reach=reach)
    scales = scale_rules(counts.sum(axis=1))
    counts = counts.tocoo()
    weights = counts.data * scales[counts.row]
    return keep_weightiest(counts.row, counts.col + 1, weights, item_count, decay=decay, window=window)


def keep_weightiest(
    firsts: NDArray[np.integer],
    then: NDArray[np.integer],
    weights: NDArray[np.float64],
    item_count: int,
    *,
    decay: float,
    window: int,
    most: int | None = None,
) -> Rules:
    """Rules from item to item by index, weights above 0: the `most` weightiest of each that a bundle may hold."""
    kept = find_highest(firsts, then, weights, max(1, min(most or FOLLOWERS, MOST_PUBLISHED // item_count)))
    return Rules(
        starts=np.searchsorted(firsts[kept], np.arange(item_count + 2)).astype(np.int64),
        followers=then[kept].astype(np.int32),
        weights=weights[kept].astype(np.float32),
        decay=decay,
        window=window,
    )


def learn_rules(train: Histories, item_count: int, most: int) -> SequentialRules:
    """The `most` weightiest rules of each item, equal ones by index; their strength is still to be chosen."""
    return cut_rules(count_rules(train, item_count), most)


def cut_rules(counts: sparse.csr_array, most: int) -> SequentialRules:
    """The same of what `count_rules` counted."""
    scales = scale_rules(counts.sum(axis=1))
    counts = counts.tocoo()
    kept = find_highest(counts.row, counts.col, counts.data, most)
    firsts = counts.row[kept]
    positions = count_within(firsts)
    rules = make_rules(counts.shape[1], most)
    rules.followers[firsts, positions] = torch.from_numpy(counts.col[kept].astype(np.int32) + 1)
    rules.weights[firsts, positions] = torch.from_numpy((counts.data[kept] * scales[firsts]).astype(np.float32))
    return rules


def make_rules(item_count: int, most: int) -> SequentialRules:
    """Room for so many rules of each item: no item has more than there are items."""
    return SequentialRules(item_count, min(most, item_count))


def require_room(item_count: int, most: int | None) -> None:
    """Refuse more rules than can be published. Raises RecipeError."""
    largest = MOST_RULES // (item_count + 2)
    if most is not None and min(most, item_count) > largest:
        raise RecipeError(f"model.rules_per_item must be at most {largest:,} for a log of {item_count:,} items")


def find_fault(rules: SequentialRules) -> str | None:
    """Why rules that were read cannot have been counted, if they cannot."""
    lowest, highest = (int(followers) for followers in rules.followers.aminmax())
    if lowest < 0 or highest > len(rules.followers) - 2:
        return "a rule leads to no item"
    for values in (rules.weights, rules.strength):
        if not bool(torch.isfinite(values).all() and (values >= 0).all()):
            return "a weight is not a number of at least 0"
    return None

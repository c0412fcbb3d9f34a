"""Sequential rules: what soon followed what in the training histories, whole or cut to the weightiest of each item."""

import numpy as np
import torch
from scipy import sparse

from model.contract.rules import FOLLOWERS, Rules
from model.contract.rules import MOST_RULES as MOST_PUBLISHED
from model.nets.rules import SequentialRules
from training.baselines.sparse_rows import count_within, find_highest
from training.data.histories import Histories
from training.errors import RecipeError

MOST_RULES = 2**27
"""A GiB of indexes and weights: a bundle's graph, which holds them, may have two."""


def count_rules(train: Histories, item_count: int, *, reach: int = 20) -> sparse.csr_array:
    """Weigh every rule i -> j, row i for the item of index i, column j - 1 (V + 1, V).

    It weighs 1/s whenever j came s places after i in a training history, for s up to `reach` (Ludewig & Jannach 2018,
    "SR"), over the square root of what i's rules weigh together, so that frequent items do not outvote rare ones.
    """
    rows, items = train.flatten()
    shape = (item_count + 1, item_count)
    counts = sparse.csr_array(shape)
    for step in range(1, reach + 1):
        same = rows[step:] == rows[:-step]
        first, then = items[:-step][same], items[step:][same]
        other = first != then
        weights = np.full(int(other.sum()), 1 / step)
        counts = counts + sparse.csr_array((weights, (first[other], then[other] - 1)), shape=shape)
    return sparse.csr_array(sparse.diags_array(np.maximum(counts.sum(axis=1), 1) ** -0.5) @ counts)


def gather_rules(train: Histories, item_count: int) -> Rules:
    """The weightiest rules of each item, for a bundle: as many of each as its size allows, equal ones by index."""
    counts = count_rules(train, item_count).tocoo()
    kept = find_highest(counts.row, counts.col, counts.data, min(FOLLOWERS, MOST_PUBLISHED // item_count))
    starts = np.searchsorted(counts.row[kept], np.arange(item_count + 2))
    return Rules(
        starts=starts.astype(np.int64),
        followers=counts.col[kept].astype(np.int32) + 1,
        weights=counts.data[kept].astype(np.float32),
    )


def learn_rules(train: Histories, item_count: int, most: int) -> SequentialRules:
    """The `most` weightiest rules of each item, equal ones by index; their strength is still to be chosen."""
    counts = count_rules(train, item_count).tocoo()
    kept = find_highest(counts.row, counts.col, counts.data, most)
    firsts = counts.row[kept]
    positions = count_within(firsts)
    rules = make_rules(item_count, most)
    rules.followers[firsts, positions] = torch.from_numpy(counts.col[kept].astype(np.int32) + 1)
    rules.weights[firsts, positions] = torch.from_numpy(counts.data[kept].astype(np.float32))
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

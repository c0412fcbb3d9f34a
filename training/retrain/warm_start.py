"""Begin a training where another one ended: weights carried over to a new vocabulary by item id.

Every training numbers the items anew (docs/decisions/0001), so that rows copied by index would belong to other items.
Rows of carried items, PAD and [mask] move to their new indexes, all other weights stay as they are, and items that are
gone drop out. A new item begins as the mean of the carried items that it is near (training/fit/ppmi.py), made as long
as carried rows are: a mean of rows that point many ways is short, and a short row scores low whatever it is asked
(docs/lab/2026-11-23-warm-starts.md). Sequential rules are not carried: they are counted anew from the whole log, which
takes seconds.

Warm starts can generalise worse than cold ones at the same loss. Ash & Adams (NeurIPS 2020, arXiv 1910.08475) cure it:
shrink the weights and add a little of fresh ones.
"""

from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from model.contract.vocabulary import PAD, UNKNOWN, Vocabulary
from model.nets.network import Network, SequenceNetwork
from model.nets.nova import Nova
from training.recipe_models import ModelRecipe

STARTS = ("warm", "shrunk", "cold")
SHRINK, PERTURB = 0.6, 0.1
"""What is kept of carried weights, and what is added of fresh ones: `shrunk`."""
_TABLES = ("items.weight", "outputs.weight")
"""Parameters with a row for PAD, each item and [mask] (V + 2, D)."""
_BY_ITEM = (*_TABLES, "item_bias")
_OWN_KEYS = ("dropout", "attention_dropout", "event_dropout", "popularity_discount", "rules_per_item", "recent_days")
"""Keys of [model] that change no weight's shape or meaning."""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """How many items a start carried over, placed beside others or by their features, left as drawn, and dropped."""

    carried: int
    placed: int
    drawn: int
    gone: int


@dataclass(frozen=True)
class Source:
    """Where the weights come from: a trained network, its items, and which of them (V) it was trained on."""

    network: SequenceNetwork
    vocabulary: Vocabulary
    trained: NDArray[np.bool_]


def is_same_network(one: ModelRecipe, other: ModelRecipe) -> bool:
    """Whether weights of one model fit the other: the same keys but those that change no weight."""
    first, second = (
        {key: value for key, value in asdict(recipe).items() if key not in _OWN_KEYS} for recipe in (one, other)
    )
    return type(one) is type(other) and first == second


@torch.no_grad()
def carry(network: SequenceNetwork, vocabulary: Vocabulary, source: Source, related: sparse.csr_array) -> Carried:
    """Set the weights of an untrained network for `vocabulary` (V' items) to those of a source for V items.

    `related` (V', V') says how near items are. An item that is near no carried one keeps its drawn row, and gets the
    carried items' mean bias.
    """
    old = source.vocabulary.encode(vocabulary.item_ids)  # (V'), UNKNOWN for new items
    known = old != UNKNOWN
    known[known] = source.trained[old[known] - 1]
    new_rows, old_rows = np.flatnonzero(known), old[known].astype(np.int64) - 1
    mixture = _weigh_neighbours(related, known)
    composed = _is_composed(network)
    placed = ~known if composed else ~known & (np.asarray(mixture.sum(axis=1)).ravel() > 0)
    theirs = dict(source.network.named_parameters())
    for name, own in network.named_parameters():
        given = theirs[name].to(own)
        if name not in _BY_ITEM:
            own.copy_(given)
            continue
        own_items, given_items = (_get_items(name, tensor) for tensor in (own, given))
        if name == "item_bias":
            own_items.fill_(given_items[torch.from_numpy(old_rows)].mean() if len(old_rows) else 0.0)
        own_items[torch.from_numpy(new_rows)] = given_items[torch.from_numpy(old_rows)]
        if not composed:
            means = torch.from_numpy((mixture @ own_items.cpu().numpy())[placed]).to(own)
            if name in _TABLES and len(old_rows):
                means = F.normalize(means, dim=1) * given_items[torch.from_numpy(old_rows)].norm(dim=1).median()
            own_items[torch.from_numpy(np.flatnonzero(placed))] = means
        if name in _TABLES:
            for end in (PAD, -1):  # [mask] stays behind the last item
                own[end] = given[end]
    if isinstance(network, Nova) and network.config.id_dropout and not network.feature_embeddings:
        _describe_new(network, ~known)
    return Carried(
        carried=len(new_rows),
        placed=int(placed.sum()),
        drawn=int((~known & ~placed).sum()),
        gone=int(source.trained.sum()) - len(new_rows),
    )


@torch.no_grad()
def shrink_and_perturb(network: Network, fresh: Network) -> None:
    """Pull the weights of a network towards those of an untrained one of the same sizes.

    Matrices alone: gains and biases that are shrunk change the scale of every layer, which is no fresh start.
    """
    drawn = dict(fresh.named_parameters())
    for name, own in network.named_parameters():
        if own.dim() > 1:
            own.mul_(SHRINK).add_(drawn[name].to(own), alpha=PERTURB)


def _get_items(name: str, tensor: Tensor) -> Tensor:
    """The part of a parameter that belongs to items, row j for the item of index j + 1: a view."""
    return tensor[PAD + 1 : -1] if name in _TABLES else tensor


def _weigh_neighbours(related: sparse.csr_array, known: NDArray[np.bool_]) -> sparse.csr_array:
    """Weights (V', V') of each new item's carried neighbours, summing to 1; rows of all other items are empty."""
    kept = sparse.diags_array((~known).astype(np.float64)) @ related @ sparse.diags_array(known.astype(np.float64))
    totals = np.asarray(kept.sum(axis=1)).ravel()
    shares = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    return sparse.csr_array(sparse.diags_array(shares) @ kept).astype(np.float32)


def _is_composed(network: Network) -> bool:
    """Whether an item's row is made of its features, to which the table only adds what is the item's own."""
    return isinstance(network, Nova) and (network.feature_embeddings or bool(network.config.id_dropout))


def _describe_new(network: Nova, new: NDArray[np.bool_]) -> None:
    """Rows of new items by their features, which the network was trained for (model/nets/new_items.py)."""
    indexes = torch.from_numpy(np.flatnonzero(new)) + PAD + 1
    network.items.weight[indexes] = network.embed_features(indexes)

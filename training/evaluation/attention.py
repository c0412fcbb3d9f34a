"""Attention maps: the mean attention weights of a network between the last positions (Sun et al. 2019, figure 2)."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from model.nets.network import Network
from model.nets.transformer import Transformer
from training.data.histories import Histories
from training.errors import InputError

LAST = 10
MOST_USERS = 1_000
"""Means over more users change by less than a colour can show."""
_SEED = 12345
_WEIGHTS_AT_ONCE = 2**24
"""64 MiB of them."""


@dataclass(frozen=True)
class AttentionMap:
    """Mean attention weights over users."""

    weights: NDArray[np.float64]
    """(L, H, K, K), queries before keys, both oldest first: what a row lacks to 1 went to older positions."""
    positions: list[str]
    """The K tokens: how many events before the one asked for, and [mask] in its place."""
    causal: bool
    users: int
    """Users in the average."""
    long_enough: int
    """Users whose histories fill the K positions; the average takes all of them, or some."""
    questions: int
    """Users with a test question."""


def measure_attention(network: Network, histories: Histories) -> AttentionMap:
    """Average over (at most MOST_USERS) histories with LAST events, or as many as the network sees if these are fewer.

    Raises InputError when there are none, and for a network without attention.
    """
    if not isinstance(network, Transformer):
        raise InputError("only transformers have attention weights")
    config = network.config
    K = min(LAST, config.max_length - network.causal)  # a causal network's window begins with [mask], ours does not
    long_enough = np.flatnonzero(histories.lengths >= K)
    if not len(long_enough):
        raise InputError(f"no attention weights to average: no test history has {K} events of known items")
    chosen = np.random.default_rng(_SEED).permutation(long_enough)[:MOST_USERS]
    by_length = chosen[np.argsort(histories.lengths[chosen], kind="stable")]  # so that batches hold little padding
    total = np.zeros((config.layers, config.heads, K, K))
    step = max(1, _WEIGHTS_AT_ONCE // (config.layers * config.heads * config.max_length**2))
    for begin in range(0, len(by_length), step):
        total += _add_up(network, histories.select(by_length[begin : begin + step]), K)
    return AttentionMap(
        weights=total / len(chosen),
        positions=_name_positions(K, causal=network.causal),
        causal=network.causal,
        users=len(chosen),
        long_enough=len(long_enough),
        questions=len(histories),
    )


@torch.inference_mode()
def _add_up(network: Transformer, histories: Histories, K: int) -> NDArray[np.float64]:
    config, device = network.config, network.item_bias.device
    item_ids, lengths = histories.query_next(max_length=config.max_length, mask_index=network.item_count + 1)
    network.eval()
    layers = network.weigh(torch.from_numpy(item_ids).to(device), torch.from_numpy(lengths).to(device))
    sums = torch.stack([layer[:, :, -K:, -K:].double().sum(dim=0) for layer in layers])
    return sums.cpu().numpy()


def _name_positions(K: int, *, causal: bool) -> list[str]:
    """A causal network reads every token a place later, so that [mask], which asks, is not among its last ones."""
    if causal:
        return [f"-{back}" for back in range(K, 0, -1)]
    return [*(f"-{back}" for back in range(K - 1, 0, -1)), "[mask]"]

"""Popularity discount: score how much more likely than usual an item is, instead of how likely it is.

A network trained by the softmax scores item j by about log p(j | history). With a discount of 1 it is the log of
p(j | history) / q(j), q being j's share of the events: the logits of Menon et al. (ICLR 2021, equation 9), and the best
way to tell a target from negatives that were drawn by q.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from model.nets.network import Network


def discount_popularity(network: Network, counts: NDArray[np.int64], discount: float) -> None:
    """Take `discount` times the log of its share of the training events, `counts` (V), off each item's score."""
    network.item_bias.data -= discount * torch.from_numpy(take_logs(counts)).to(network.item_bias)


def take_logs(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """The log of each item's share of the events (V). One is added to each: an item without events has a share, too."""
    logs: NDArray[np.float32] = np.log((counts + 1) / (counts + 1).sum()).astype(np.float32)
    return logs

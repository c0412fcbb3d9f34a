"""Popular items discounted: a score for how much more likely than usual an item is, instead of how likely it is.

A network trained by the softmax scores item j by about log p(j | history). With a discount of 1 it is the log of
p(j | history) / q(j), q being j's share of the events: the logits of Menon et al. (ICLR 2021, equation 9), and the best
way to tell a target from negatives that were drawn by q.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from model.nets.network import Network


def discount_popularity(network: Network, counts: NDArray[np.int64], discount: float) -> None:
    """Take `discount` times the log of its share of the training events, `counts` (V), off each item's score, for good.

    One is added to each count, since an item without events has a share, too.
    """
    shares = (counts + 1) / (counts + 1).sum()
    network.item_bias.data -= discount * torch.from_numpy(np.log(shares)).to(network.item_bias)

"""Recency: what is popular of late, beside a network, as part of the items' bias.

A network learns from all of a log how likely an item is, and so knows what was popular, not what is. With a weight w
the score of item j becomes network_j + w log(1 + n_j), n_j being how often it occurred in the last days of what may be
counted: of the training events when w is chosen, of all events before the questions when they are asked, of the whole
log when a bundle is made. What is served is an ordinary bias.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.baselines.popular import count_recent
from training.data.histories import Histories
from training.data.interactions import Log
from training.errors import DataError
from training.recipe import Recipe


def count_for(recipe: Recipe, log: Log, histories: Histories) -> NDArray[np.int64] | None:
    """How often each item occurred of late in some of a log's events (V), None where a recipe does not ask.

    Raises DataError for a log without times.
    """
    if recipe.recent_days is None:
        return None
    if log.timestamps_ms is None:
        raise DataError("model.recent_days needs a log with times: name the column by data.timestamp_column")
    return count_recent(histories, len(log.vocabulary), log.timestamps_ms, recipe.recent_days)


class Recency(nn.Module):
    """How often each of V items occurred of late, and what that counts."""

    counts: Tensor
    """(V) int64."""
    weight: Tensor
    """One number: 0 leaves the network alone."""

    def __init__(self, counts: NDArray[np.int64], weight: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("counts", torch.from_numpy(counts))
        self.register_buffer("weight", torch.tensor(weight))

    def forward(self) -> Tensor:
        """What is added to the scores (V)."""
        return self.weight * self.lift()

    def lift(self) -> Tensor:
        """The same at weight 1."""
        return torch.log1p(self.counts.float())

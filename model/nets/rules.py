"""Sequential rules beside a network: what soon followed the newest items of a history (Ludewig & Jannach 2018, "SR").

A network learns which items are alike, rules remember which item followed which. Their shares are mixed as logarithms:
score = network + strength * log(1 + p / FLOOR), p being an item's share of all that the rules say. So an item that no
rule names keeps the network's score, and so does every item of an empty history. Offline and in the exported graph it
is this one module.

Shapes: B batch, T tokens, V items, M rules an item, R newest items asked.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.contract.vocabulary import PAD

DECAY = 0.7
"""What an item's rules weigh less for each newer item."""
WINDOW = 20
"""R. The twentieth newest item has a thousandth of the newest one's weight."""
FLOOR = 1e-6
"""The share from which on a rule lifts its item."""


class SequentialRules(nn.Module):
    """The M weightiest rules of every item, and their weight beside the network."""

    followers: Tensor
    """(V + 2, M) int32: what followed each item, PAD where there is less."""
    weights: Tensor
    """(V + 2, M): how often and how soon, 0 at PAD."""
    strength: Tensor
    """The rule weight, one number: 0 leaves the network alone. Stored weights hold it under this name."""
    decays: Tensor

    def __init__(self, item_count: int, size: int) -> None:
        super().__init__()
        shape = (item_count + 2, size)
        self.register_buffer("followers", torch.full(shape, PAD, dtype=torch.int32))
        self.register_buffer("weights", torch.zeros(shape))
        self.register_buffer("strength", torch.zeros(()))
        self.register_buffer("decays", DECAY ** torch.arange(WINDOW - 1, -1, -1.0)[:, None], persistent=False)

    def forward(self, item_ids: Tensor) -> Tensor:
        """What is added to the scores after right-aligned item_ids (B, T) that end in [mask]: (B, V + 2)."""
        return self.strength * self.lift(item_ids)

    def lift(self, item_ids: Tensor) -> Tensor:
        """The same at strength 1: log(1 + p / FLOOR), 0 where no rule leads (B, V + 2)."""
        newest = self.read_newest(item_ids)  # embedding below, not indexing: ONNX gathers so
        return self.mix(F.embedding(newest, self.weights), F.embedding(newest, self.followers))

    def read_newest(self, item_ids: Tensor) -> Tensor:
        """The newest items that are asked, oldest first, PAD before them (B, R), of item_ids (B, T) as above."""
        padding = torch.full_like(item_ids[:, :1], PAD).expand(-1, WINDOW)  # not F.pad: CUDA's Pad takes no int32
        return torch.cat([padding, item_ids], dim=1)[:, -WINDOW - 1 : -1]  # whatever T is

    def mix(self, weights: Tensor, followers: Tensor) -> Tensor:
        """The lift by the rules of the newest items, whatever they are counted from: both (B, R, M) -> (B, V + 2)."""
        weights, followers = (weights * self.decays).flatten(1), followers.flatten(1).long()
        sums = weights.new_zeros(weights.shape[0], len(self.weights)).scatter_add(1, followers, weights)
        total = sums.sum(dim=1, keepdim=True).clamp(min=torch.finfo(sums.dtype).tiny)
        return torch.log1p(sums / total / FLOOR)

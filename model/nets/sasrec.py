"""SASRec (Kang & McAuley, ICDM 2018): causal self-attention, trained to predict each item from those before it.

As in the authors' code, item embeddings are scaled by sqrt(D) and a LayerNorm closes the last layer. [mask] at the end
of a history asks for the next item: here it is the token before the first one. With every token moved one place to the
right and [mask] in front, the state at a place sees [mask] and the items before that place, never the item in it. So a
window trains all its places at once, the last place answers when serving, and an empty history has an answer, too.
"""

import math

import torch
from torch import Tensor

from model.nets.configs import PaperConfig
from model.nets.dropout import drop
from model.nets.network import mark_real, shift_right
from model.nets.relative_time import measure_elapsed
from model.nets.transformer import Transformer


class Sasrec(Transformer):
    """Causal encoder; the state at a place ranks the items for it by what came before: r_t = F_t M^T."""

    def __init__(self, config: PaperConfig, item_count: int) -> None:
        super().__init__(config, item_count)
        self.register_buffer("item_bias", torch.zeros(item_count), persistent=False)  # F M^T has none
        self.reset_parameters()

    def encode(self, item_ids: Tensor, lengths: Tensor, at: Tensor | None = None, *events: Tensor) -> Tensor:
        """Take right-aligned item_ids (B, T), T <= N, lengths (B), positions (B, Q) or none. Returns (B, T or Q, D)."""
        T = item_ids.shape[1]
        column = torch.arange(T, device=item_ids.device)
        before = shift_right(item_ids, lengths, self.item_count + 1)
        earlier = (features.roll(1, dims=1) for features in events)  # the network hides what is beside [mask]
        x, side = self.place(self.read_items(before) * math.sqrt(self.config.width), before, *earlier)
        past = (column[:, None] >= column) & mark_real(item_ids, lengths)[:, None, :]
        allowed = past | (column[:, None] == column)  # padding sees itself: a query without keys would give NaN
        elapsed = None
        if self.config.relative_time:  # the token at a place asks for the item there, and is the one before it
            asked = self.read_times(item_ids, events)
            elapsed = measure_elapsed(asked, shift_right(asked, lengths, 0), causal=True)
        return self.run_layers(drop(x, self.config.dropout, self.training), allowed[:, None], at, side, elapsed)

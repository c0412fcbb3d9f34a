"""GRU4Rec (Hidasi et al., ICLR 2016): a gated recurrent network reads the history, its state ranks the next item.

[mask] at the end of a history asks for the next item: as in SASRec (model/nets/sasrec.py) every token moves one place
to the right and [mask] stands in front, so that the state at a place has read [mask] and the items before that place.
Rows are moved to the left edge while they are read, since a recurrent network would read padding before them.
"""

from typing import cast

import torch
from torch import Tensor, nn

from model.nets.configs import Gru4RecConfig
from model.nets.dropout import drop
from model.nets.network import SequenceNetwork, pick_positions, shift_right


class Gru4Rec(SequenceNetwork):
    """Recurrent encoder of the items before each place."""

    config: Gru4RecConfig

    def __init__(self, config: Gru4RecConfig, item_count: int) -> None:
        super().__init__(config, item_count, tie_embeddings=config.tie_embeddings)
        between = config.dropout if config.layers > 1 else 0.0
        self.gru = nn.GRU(config.width, config.width, config.layers, batch_first=True, dropout=between)
        self.item_bias = nn.Parameter(torch.zeros(item_count))
        self.reset_parameters()
        self.gru.reset_parameters()  # 0.02 is for embeddings: recurrent weights this small forget at once

    def encode(self, item_ids: Tensor, lengths: Tensor, at: Tensor | None = None, *_: Tensor) -> Tensor:
        """Take right-aligned item_ids (B, T), T <= N, lengths (B), positions (B, Q) or none. Returns (B, T or Q, D)."""
        T = item_ids.shape[1]
        before = shift_right(item_ids, lengths, self.item_count + 1)
        column = torch.arange(T, device=item_ids.device)
        padding = column[-1] + 1 - lengths.long()[:, None]
        left = before.gather(1, torch.minimum(column + padding, column[-1]))  # what follows the history repeats its end
        states = self._read(drop(self.items(left), self.config.dropout, self.training))
        return pick_positions(states, ((column if at is None else at) - padding).clamp(min=0))

    def _read(self, x: Tensor) -> Tensor:
        """States (B, T, D), in float32: under autocast cuDNN's networks run in float16, whatever was asked for.

        Without a scaler small gradients are 0 there.
        """
        if x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, enabled=False):
                return cast("Tensor", self.gru(x.float())[0])
        return cast("Tensor", self.gru(x)[0])

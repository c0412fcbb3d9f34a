"""BERT4Rec (Sun et al., CIKM 2019): bidirectional self-attention over a history, trained by the Cloze task.

Where the paper's text and the authors' code differ, the code is followed: LayerNorm and dropout on the embedding sum,
LayerNorm after the head's GELU.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.nets.configs import PaperConfig
from model.nets.dropout import drop
from model.nets.network import mark_real
from model.nets.relative_time import measure_elapsed
from model.nets.transformer import Transformer, make_norm


class Bert4Rec(Transformer):
    """Bidirectional encoder over a history with [mask] tokens; the state at a [mask] ranks the items for its place."""

    causal = False

    def __init__(self, config: PaperConfig, item_count: int) -> None:
        super().__init__(config, item_count)
        self.embedding_norm = make_norm(config)
        self.head = nn.Linear(config.width, config.width)
        self.head_norm = make_norm(config)
        self.item_bias = nn.Parameter(torch.zeros(item_count))
        self.reset_parameters()

    def encode(self, item_ids: Tensor, lengths: Tensor, at: Tensor | None = None, *events: Tensor) -> Tensor:
        """Take right-aligned item_ids (B, T), T <= N, lengths (B), positions (B, Q) or none. Returns (B, T or Q, D)."""
        x, side = self.place(self.read_items(item_ids), item_ids, *events)  # h_i^0 = v_i + p_i
        x = drop(self.embedding_norm(x), self.config.dropout, self.training)
        elapsed = None
        if self.config.relative_time:
            times = self.read_times(item_ids, events)
            elapsed = measure_elapsed(times, times, causal=False)
        return self.run_layers(x, mark_real(item_ids, lengths)[:, None, None, :], at, side, elapsed)

    def read_head(self, hidden: Tensor) -> Tensor:
        """GELU(h W^P + b^P) of equation 7 with its LayerNorm."""
        read: Tensor = self.head_norm(F.gelu(self.head(hidden)))
        return read

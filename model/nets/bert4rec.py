"""BERT4Rec (Sun et al., CIKM 2019): bidirectional self-attention over a history, trained by the Cloze task.

Shapes: B batch, T tokens, N longest history, D width, H heads, V items, M masked tokens.
Where the paper's text and the authors' code differ, the code is followed: LayerNorm and dropout on the embedding sum,
LayerNorm after the head's GELU. Positions count back from the newest token (model/contract/sequence.py).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.contract.vocabulary import PAD


@dataclass(frozen=True, kw_only=True)
class Bert4RecConfig:
    """Sizes and dropout. The defaults are the paper's smallest network for MovieLens."""

    item_count: int
    max_length: int = 200
    width: int = 64
    layers: int = 2
    heads: int = 2
    dropout: float = 0.1

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit together."""
        if min(self.item_count, self.layers, self.heads) < 1 or self.max_length < 2:
            raise ValueError("item_count, layers and heads start at 1, max_length at 2")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if not 0 <= self.dropout < 1:
            raise ValueError("dropout lies in [0, 1)")


class Layer(nn.Module):
    """One Transformer layer (equations 1 to 6): A = LN(X + Drop(MH(X))), out = LN(A + Drop(PFFN(A)))."""

    def __init__(self, config: Bert4RecConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.query_key_value = nn.Linear(config.width, 3 * config.width)
        self.attention_out = nn.Linear(config.width, config.width)
        self.attention_norm = nn.LayerNorm(config.width)
        self.inner = nn.Linear(config.width, 4 * config.width)
        self.outer = nn.Linear(4 * config.width, config.width)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        """Take x (B, T, D) and allowed (B, 1, 1, T), true where a key is a real token. Returns (B, T, D)."""
        B, T, D = x.shape
        q, k, v = self.query_key_value(x).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        drop = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=drop)  # (B, H, T, D/H)
        mixed = self.attention_out(mixed.transpose(1, 2).reshape(B, T, D))
        x = self.attention_norm(x + F.dropout(mixed, self.dropout, self.training))
        fed = self.outer(F.gelu(self.inner(x)))  # GELU(x) = x Phi(x), the exact one
        out: Tensor = self.norm(x + F.dropout(fed, self.dropout, self.training))
        return out


class Bert4Rec(nn.Module):
    """Bidirectional encoder over a history with [mask] tokens; the head ranks the items for a masked place."""

    def __init__(self, config: Bert4RecConfig) -> None:
        super().__init__()
        self.config = config
        self.items = nn.Embedding(config.item_count + 2, config.width)  # PAD, items 1..V, MASK
        self.positions = nn.Parameter(torch.empty(config.max_length, config.width))
        self.embedding_norm = nn.LayerNorm(config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.head = nn.Linear(config.width, config.width)
        self.head_norm = nn.LayerNorm(config.width)
        self.item_bias = nn.Parameter(torch.zeros(config.item_count))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights from a normal of deviation 0.02 cut at 0.02 (section 4.3), biases 0."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.trunc_normal_(parameter, std=0.02, a=-0.02, b=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def encode(self, item_ids: Tensor, lengths: Tensor) -> Tensor:
        """Take right-aligned item_ids (B, T), T <= N, and lengths (B). Returns hidden states (B, T, D).

        States at padding are meaningless; no real token sees them.
        """
        T = item_ids.shape[1]
        column = torch.arange(T, device=item_ids.device)
        allowed = column >= T - lengths[:, None]  # (B, T)
        x: Tensor = self.items(item_ids) + self.positions[self.config.max_length - T :]  # h_i^0 = v_i + p_i
        x = F.dropout(self.embedding_norm(x), self.config.dropout, self.training)
        for layer in self.layers:
            x = layer(x, allowed[:, None, None, :])
        return x

    def read_head(self, hidden: Tensor) -> Tensor:
        """GELU(h W^P + b^P) with its LayerNorm: hidden (..., D) -> (..., D), ready for the item table."""
        read: Tensor = self.head_norm(F.gelu(self.head(hidden)))
        return read

    def score_items(self, hidden: Tensor) -> Tensor:
        """Logits of equation 7: hidden (..., D) -> (..., V), column j for the item of index j + 1."""
        return F.linear(self.read_head(hidden), self.items.weight[PAD + 1 : -1], self.item_bias)

    def forward(self, item_ids: Tensor, lengths: Tensor) -> Tensor:
        """Scores of all items after each history that ends in [mask]: (B, T), (B) -> (B, V)."""
        return self.score_items(self.encode(item_ids, lengths)[:, -1])

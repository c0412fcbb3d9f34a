"""What is known of items, as vectors: a table of codes by item index, and an embedding for every code.

The codes are constants of the network: whoever has its weights has them, the exported graph included. [mask] has none,
so that what is known of a hidden item is hidden with it.

Shapes: B batch, T tokens, V items, D width, W the most values that an item has in a column.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

NONE = 0
"""The code of no value: of PAD, [mask], and items of which nothing is known."""


class Column(nn.Module):
    """One column: an item's vector is the mean of its values' embeddings, 0 where it has none."""

    codes: Tensor
    """(V + 2, W) int32: an item's values from 1 on, in any order, NONE in what is left of the row."""
    shares: Tensor
    """(V + 2, W, 1): what each value counts."""

    def __init__(self, codes: Tensor, size: int, width: int) -> None:
        super().__init__()
        if codes[0].any() or codes[-1].any():
            raise ValueError("PAD and [mask] have no values")
        real = (codes != NONE)[..., None]
        self.register_buffer("codes", codes.int())
        self.register_buffer("shares", real / real.sum(dim=1, keepdim=True).clamp(min=1), persistent=False)
        self.values = nn.Embedding(size + 1, width)

    def forward(self, item_ids: Tensor) -> Tensor:
        """Vectors (..., D) of items (...)."""
        shares = F.embedding(item_ids, self.shares.flatten(1))[..., None]
        values: Tensor = self.values(F.embedding(item_ids, self.codes))  # (..., W, D)
        return (values * shares).sum(dim=-2)


def make_columns(features: Sequence[tuple[Tensor, int]], width: int) -> nn.ModuleList:
    """A column for each table of codes with the number of its values."""
    return nn.ModuleList(Column(codes, size, width) for codes, size in features)

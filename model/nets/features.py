"""What is known of items and of events, as vectors: codes, and an embedding for every code.

Items' codes are a table by item index, which a run keeps beside the weights and a graph holds as a constant. [mask] has
none, so that what is known of a hidden item is hidden with it. Events' codes are made of what comes with a history
(model/contract/event_inputs.py), by edges that are constants, too.

Shapes: B batch, T tokens, V items, D width, W the most values that an item has in a column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
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
        self.register_buffer("codes", codes.int(), persistent=False)
        self.register_buffer("shares", real / real.sum(dim=1, keepdim=True).clamp(min=1), persistent=False)
        self.values = nn.Embedding(size + 1, width)

    def forward(self, item_ids: Tensor) -> Tensor:
        """Vectors (..., D) of items (...)."""
        shares = F.embedding(item_ids, self.shares.flatten(1))[..., None]
        values: Tensor = self.values(F.embedding(item_ids, self.codes))  # (..., W, D)
        return (values * shares).sum(dim=-2)


class Types(nn.Module):
    """The type of each event."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.values = nn.Embedding(size + 1, width)

    def forward(self, features: Tensor, shown: Tensor) -> Tensor:
        """Vectors (B, T, D) of features (B, T) where `shown` (B, T); else that of no type."""
        return _embed(self.values, features * shown)


class Amounts(nn.Module):
    """The value of each event, such as a rating, by buckets: code 1 is below the first edge."""

    edges: Tensor

    def __init__(self, edges: Sequence[float], width: int) -> None:
        super().__init__()
        bounds = edges or [torch.inf]  # ONNX Runtime loses count of dimensions where one has no elements
        self.register_buffer("edges", torch.tensor(bounds, dtype=torch.float32), persistent=False)
        self.values = nn.Embedding(len(bounds) + 2, width)

    def forward(self, features: Tensor, shown: Tensor) -> Tensor:
        """Vectors (B, T, D) of features (B, T) where `shown` (B, T) and no NaN; else that of no value."""
        code = 1 + (features[..., None] >= self.edges).sum(dim=-1)
        return _embed(self.values, code * (shown & (features == features)))  # noqa: PLR0124 - NaN alone is not equal to itself


class Gaps(Amounts):
    """How long after the event before it each event came: milliseconds, by buckets. Hidden times make no gaps."""

    def forward(self, features: Tensor, shown: Tensor) -> Tensor:
        """Vectors (B, T, D) of features (B, T) where it and what came before are `shown`; else that of no value."""
        known = shown & (features != 0)
        later = torch.arange(features.shape[1], device=features.device) > 0  # the oldest event has no gap
        return super().forward((features - features.roll(1, dims=1)).float(), known & known.roll(1, dims=1) & later)


@dataclass(frozen=True, kw_only=True)
class SideInformation:
    """What a network knows of items and events besides their ids."""

    items: Sequence[tuple[Tensor, int]] = ()
    """For each column of items its codes (V + 2, W) and how many values there are."""
    events: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The edges of buckets by the input that is cut into them; of `types`, which are none, nothing."""
    type_count: int = 0

    def make_columns(self, width: int) -> nn.ModuleList:
        """A module for each column of items."""
        return nn.ModuleList(Column(codes, size, width) for codes, size in self.items)

    def make_readers(self, width: int) -> nn.ModuleList:
        """A module for each input of events, in their order."""
        kinds = {"values": Amounts, "times": Gaps}
        return nn.ModuleList(
            Types(self.type_count, width) if name == "types" else kinds[name](edges, width)
            for name, edges in self.events.items()
        )


def _embed(table: nn.Embedding, codes: Tensor) -> Tensor:
    vectors: Tensor = table(codes)
    return vectors

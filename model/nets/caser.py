"""Caser (Tang & Wang, WSDM 2018): the last few items as an image, read by horizontal and vertical filters.

A horizontal filter reads h items in a row, h from 1 to the whole window, and is pooled by its maximum over where it may
stand; a vertical one weighs the items of the window, one dimension at a time. The paper joins the user's embedding to
what they find. `CaserHistory` leaves it out and can be served.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.nets.configs import CaserConfig
from model.nets.dropout import drop
from model.nets.network import (
    SequenceNetwork,
    UserNetwork,
    mark_real,
    pick_positions,
    shift_right,
)


class _Filters(nn.Module):
    """The convolutions and the layer that joins them, at all positions of a row at once."""

    def __init__(self, config: CaserConfig) -> None:
        super().__init__()
        self.config = config
        self.across = nn.ModuleList(
            nn.Conv1d(config.width, config.horizontal_filters, height) for height in range(1, config.window + 1)
        )
        self.down = nn.Conv1d(1, config.vertical_filters, config.window)
        found = config.vertical_filters * config.width + config.horizontal_filters * config.window
        self.join = nn.Linear(found, config.width)

    def forward(self, image: Tensor) -> Tensor:
        """Take embeddings of tokens (B, T, D), 0 where there is none. Returns (B, T, D), of the window up to each."""
        B, T, D = image.shape
        x = F.pad(image.transpose(1, 2), (self.config.window - 1, 0))  # (B, D, L - 1 + T)
        pooled = [_take_highest(F.relu(across(x)), T) for across in self.across]
        weighed = self.down(x.reshape(B * D, 1, -1)).view(B, D * self.config.vertical_filters, T)
        found = torch.cat([*pooled, weighed], dim=1).transpose(1, 2)
        joined: Tensor = F.relu(self.join(drop(found, self.config.dropout, self.training)))
        return joined


def _take_highest(found: Tensor, T: int) -> Tensor:
    """The highest of n + 1 columns in a row of (B, C, T + n): (B, C, T). PyTorch exports its pooling for one T only."""
    slices = [found[:, :, start : start + T] for start in range(found.shape[2] - T + 1)]
    return torch.stack(slices).amax(dim=0)


def _read_image(network: "CaserHistory | Caser", item_ids: Tensor, lengths: Tensor) -> Tensor:
    before = network.items(shift_right(item_ids, lengths, network.item_count + 1))
    found: Tensor = network.filters(before * mark_real(item_ids, lengths)[:, :, None])
    return found


class CaserHistory(SequenceNetwork):
    """The output of the filters over the last items ranks the next one."""

    config: CaserConfig

    def __init__(self, config: CaserConfig, item_count: int) -> None:
        super().__init__(config, item_count, tie_embeddings=False)
        self.item_bias = nn.Parameter(torch.zeros(item_count))
        self.reset_parameters()
        self.filters = _Filters(config)

    def encode(self, item_ids: Tensor, lengths: Tensor, at: Tensor | None = None, *_: Tensor) -> Tensor:
        """Take right-aligned item_ids (B, T), T <= N, lengths (B), positions (B, Q) or none. Returns (B, T or Q, D)."""
        states = _read_image(self, item_ids, lengths)
        return states if at is None else pick_positions(states, at)


class Caser(UserNetwork):
    """The output of the filters and the embedding of the user, concatenated: S = 2 D."""

    config: CaserConfig

    def __init__(self, config: CaserConfig, item_count: int, user_count: int) -> None:
        super().__init__(config, item_count, user_count)
        self.outputs = nn.Embedding(item_count + 2, 2 * config.width)
        self.item_bias = nn.Parameter(torch.zeros(item_count))
        self.reset_parameters()
        self.filters = _Filters(config)  # drawn by torch's own rule

    @property
    def rows(self) -> Tensor:
        """The output embeddings with those of PAD and MASK (V + 2, 2 D), which rank nothing."""
        return self.outputs.weight

    def encode(self, item_ids: Tensor, lengths: Tensor, users: Tensor) -> Tensor:
        """Take right-aligned item_ids (B, T), lengths (B) and their users (B). Returns states (B, T, 2 D)."""
        found = _read_image(self, item_ids, lengths)
        return torch.cat([found, self.users(users)[:, None].expand_as(found)], dim=-1)

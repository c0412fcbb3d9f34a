"""Neural collaborative filtering (He et al., WWW 2017): NeuMF, a product and a small network of user and item.

Score = h^T [p * q ; MLP(p' ; q')], the embeddings of both branches being their own (section 3.4, equation 12). With D
predictive factors the MLP is 4 D -> 2 D -> D, as the paper has it (section 4.1).

Its score is no product of a state with a table: all items are ranked by asking the network for each of them, though
the half of the first layer that reads the item is worked out once for many users.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.contract.vocabulary import PAD
from model.nets.configs import NetworkConfig
from model.nets.network import UserNetwork

_STATES_AT_ONCE = 16
_CELLS_AT_ONCE = 2**18
"""Numbers of the hidden layer that are held at once when all items are ranked: a megabyte, for a core's cache."""


class Ncf(UserNetwork):
    """NeuMF: S = 3 D, the user's embeddings for the product (D) and for the MLP (2 D)."""

    def __init__(self, config: NetworkConfig, item_count: int, user_count: int) -> None:
        super().__init__(config, item_count, user_count)
        D = config.width
        self.deep_users = nn.Embedding(user_count, 2 * D)
        self.deep_items = nn.Embedding(item_count + 2, 2 * D)
        self.from_user, self.from_item = nn.Linear(2 * D, 2 * D), nn.Linear(2 * D, 2 * D, bias=False)
        self.inner = nn.Linear(2 * D, D)
        self.weigh = nn.Linear(2 * D, 1, bias=False)
        self.register_buffer("item_bias", torch.zeros(item_count), persistent=False)  # the paper has none
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw layers as torch does: at a deviation of 0.02 three of them in a row would pass hardly anything on."""
        for table in (self.users, self.items, self.deep_users, self.deep_items):
            nn.init.normal_(table.weight, std=0.02)
        for layer in (self.from_user, self.from_item, self.inner, self.weigh):
            layer.reset_parameters()

    def encode(self, item_ids: Tensor, lengths: Tensor, users: Tensor) -> Tensor:  # noqa: ARG002 - no item matters
        """The users' embeddings at every place (B, T, 3 D)."""
        states = torch.cat([self.users(users), self.deep_users(users)], dim=-1)[:, None]
        return states.expand(-1, item_ids.shape[1], -1)

    def score_items(self, hidden: Tensor) -> Tensor:
        """Logits of all items, some states (..., S) and some items at a time -> (..., V)."""
        known = self._read_items(torch.arange(self.item_count, device=hidden.device))
        items_at_once = max(1, _CELLS_AT_ONCE // (2 * self.config.width * _STATES_AT_ONCE))
        parts = list(zip(*(torch.split(part, items_at_once) for part in known), strict=True))
        states = torch.split(hidden.flatten(0, -2), _STATES_AT_ONCE)
        rows = [torch.cat([self._score(some, *part) for part in parts], dim=1) for some in states]
        return torch.cat(rows).view(*hidden.shape[:-1], self.item_count)

    def score_columns(self, read: Tensor, columns: Tensor) -> Tensor:
        """Logits of some items: states (M, S), columns (K) for all rows or (M, K), a row's own -> (M, K)."""
        return self._score(read, *self._read_items(columns))

    def _read_items(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """What no user changes: their embeddings (..., D) for the product, their half (..., 2 D) of the first layer."""
        indexes = columns + PAD + 1
        return self.items(indexes), self.from_item(self.deep_items(indexes))

    def _score(self, read: Tensor, items: Tensor, halves: Tensor) -> Tensor:
        """The scores (M, K) of items that are shared by all rows (K, ...) or a row's own (M, K, ...)."""
        D = self.config.width
        wide, deep = torch.split(read, [D, 2 * D], dim=-1)
        of_product, of_mlp = torch.split(self.weigh.weight[0], [D, D])
        hidden = F.relu(self.inner(F.relu(self.from_user(deep)[:, None] + halves)))
        scores: Tensor = (wide[:, None] * items) @ of_product + hidden @ of_mlp
        return scores

"""Factorised models: products of embeddings of the user, the last item and the next one, no more than one item back.

BPR-MF (Rendle et al., UAI 2009): <u, i>. FMC and FPMC (Rendle et al., WWW 2010): <l, i>, and <u, i> + <l, i>.
TransRec (He, Kang & McAuley, RecSys 2017): -|l + t + t_u - i|^2. All with a bias of the item. The last item of an empty
history is [mask].
"""

import torch
from torch import Tensor, nn

from model.contract.vocabulary import PAD
from model.nets.configs import NetworkConfig
from model.nets.network import (
    SequenceNetwork,
    UserNetwork,
    pick_positions,
    shift_right,
)


class BprMf(UserNetwork):
    """Matrix factorisation: a user's embedding ranks the items, whatever they did last."""

    def __init__(self, config: NetworkConfig, item_count: int, user_count: int) -> None:
        super().__init__(config, item_count, user_count)
        self.item_bias = nn.Parameter(torch.zeros(item_count))
        self.reset_parameters()

    def encode(self, item_ids: Tensor, lengths: Tensor, users: Tensor) -> Tensor:  # noqa: ARG002 - no item matters
        """The users' embeddings at every place (B, T, D)."""
        states: Tensor = self.users(users)[:, None]
        return states.expand(-1, item_ids.shape[1], -1)


class Fmc(SequenceNetwork):
    """A factorised Markov chain: two embeddings an item, as the last one and as the next one."""

    def __init__(self, config: NetworkConfig, item_count: int) -> None:
        super().__init__(config, item_count, tie_embeddings=False)
        self.item_bias = nn.Parameter(torch.zeros(item_count))
        self.reset_parameters()

    def encode(self, item_ids: Tensor, lengths: Tensor, at: Tensor | None = None, *_: Tensor) -> Tensor:
        """The embeddings of the items before each place (B, T or Q, D)."""
        states: Tensor = self.items(shift_right(item_ids, lengths, self.item_count + 1))
        return states if at is None else pick_positions(states, at)


class Fpmc(UserNetwork):
    """Matrix factorisation and factorised Markov chain side by side: S = 2 D."""

    def __init__(self, config: NetworkConfig, item_count: int, user_count: int) -> None:
        super().__init__(config, item_count, user_count)
        self.outputs = nn.Embedding(item_count + 2, 2 * config.width)
        self.item_bias = nn.Parameter(torch.zeros(item_count))
        self.reset_parameters()

    @property
    def rows(self) -> Tensor:
        """Each item's embeddings for users and for last items (V + 2, 2 D)."""
        return self.outputs.weight

    def encode(self, item_ids: Tensor, lengths: Tensor, users: Tensor) -> Tensor:
        """The user's embedding and that of the item before each place (B, T, 2 D)."""
        last = self.items(shift_right(item_ids, lengths, self.item_count + 1))
        return torch.cat([self.users(users)[:, None].expand_as(last), last], dim=-1)


class TransRec(UserNetwork):
    """A user moves through the items' space by one vector, which is the same for all but for a correction of its own.

    -|q - i|^2 = 2 <q, i> - |i|^2 - |q|^2, and the last term is the same for all items.
    """

    def __init__(self, config: NetworkConfig, item_count: int, user_count: int) -> None:
        super().__init__(config, item_count, user_count)
        self.translation = nn.Parameter(torch.zeros(1, config.width))
        self.popularity = nn.Parameter(torch.zeros(item_count))
        self.reset_parameters()
        nn.init.zeros_(self.users.weight)  # so that a user who is hardly known moves as all do

    @property
    def rows(self) -> Tensor:
        """The items' places, none outside of the unit ball (V + 2, D)."""
        return _confine(self.items.weight)

    @property
    def item_bias(self) -> Tensor:  # type: ignore[override]  # made of parameters instead of being one
        """The bias of the paper less the square of the item's own place (V)."""
        bias: Tensor = self.popularity - self.table.pow(2).sum(dim=1)
        return bias

    def pick_rows(self, columns: Tensor) -> Tensor:
        """The places (..., D) of some items alone: a step on a large catalogue would mostly confine it."""
        return _confine(self.items(columns + PAD + 1))

    def pick_bias(self, columns: Tensor, rows: Tensor) -> Tensor:
        """Their biases (...) by their places (..., D)."""
        return self.popularity[columns] - rows.pow(2).sum(dim=-1)

    def encode(self, item_ids: Tensor, lengths: Tensor, users: Tensor) -> Tensor:
        """Twice the point to which the user has moved from the item before each place (B, T, D)."""
        last = _confine(self.items(shift_right(item_ids, lengths, self.item_count + 1)))
        moved: Tensor = 2 * (last + self.translation + self.users(users)[:, None])
        return moved


def _confine(points: Tensor) -> Tensor:
    """The same places (..., D), those outside of the unit ball drawn back to its surface."""
    inside: Tensor = points / points.norm(dim=-1, keepdim=True).clamp(min=1)
    return inside

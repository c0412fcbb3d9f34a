"""What the transformers share: layers over a history (Vaswani et al. 2017) with every switch of the ablations.

Positions count back from the newest token (model/contract/sequence.py).
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.contract.event_inputs import TIMES
from model.nets.attention import attend, weigh
from model.nets.configs import PaperConfig
from model.nets.dropout import drop
from model.nets.network import SequenceNetwork, pick_positions
from model.nets.relative_time import Elapsed, TimeBias

Side = Sequence[Tensor]
"""Side inputs: vectors (B or 1, T, D) for the tokens, one for each kind of side information."""


class Layer(nn.Module):
    """Attention, then the feed-forward network, each on a residual branch.

    Post-LN: x' = LN(x + Drop(f(x))); pre-LN: x' = x + Drop(f(LN(x))).
    """

    def __init__(self, config: PaperConfig) -> None:
        super().__init__()
        self.config = config
        self.attention_dropout = config.dropout if config.attention_dropout is None else config.attention_dropout
        self.query_key_value = nn.Linear(config.width, 3 * config.width)
        self.attention_out = nn.Linear(config.width, config.width)
        if config.positions == "relative":  # columns for keys from N - 1 places after the query to N - 1 before it
            self.distance_bias = nn.Parameter(torch.empty(config.heads, 2 * config.max_length - 1))
        if config.relative_time:
            self.time_bias = TimeBias(config.heads)
        self.attention_norm = make_norm(config)
        if config.feed_forward:
            self.inner = nn.Linear(config.width, config.inner_factor * config.width)
            self.outer = nn.Linear(config.inner_factor * config.width, config.width)
            self.norm = make_norm(config)

    def forward(
        self, x: Tensor, allowed: Tensor, at: Tensor | None = None, side: Side = (), elapsed: Elapsed | None = None
    ) -> Tensor:
        """Take x (B, T, D) and allowed (B, 1, 1 or T, T), true where a token may see another. Returns (B, T, D).

        With `at` (B, Q) only these positions are computed: (B, Q, D). They are the queries; all T are keys and values.
        `elapsed` is the time between all tokens, for layers with `relative_time`.
        """
        values = self._see(x)
        keys = self.address(values, side)
        queries, x = (keys, x) if at is None else (pick_positions(keys, at), pick_positions(x, at))
        if at is not None and allowed.shape[2] > 1:
            allowed = allowed.take_along_dim(at[:, None, :, None], dim=2)
        return self.join(x, self._mix(queries, keys, values, allowed, lambda: self._lean(keys.shape[1], at, elapsed)))

    def address(self, values: Tensor, side: Side) -> Tensor:
        """What queries and keys are made of (B, T, D): the tokens, of which values are made, themselves."""
        assert not side  # noqa: S101 - a layer that reads side information says how
        return values

    def join(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Take x (..., D) and what attention made for it through both residual branches. Returns (..., D)."""
        x = self._join(x, mixed, self.attention_norm)
        if self.config.feed_forward:
            x = self._join(x, self._feed(self.norm(x) if self.config.norm == "pre" else x), self.norm)
        return x

    def weigh(self, x: Tensor, allowed: Tensor, side: Side = (), elapsed: Elapsed | None = None) -> Tensor:
        """The attention weights (B, H, T, T), queries before keys, by which `forward` mixes the same input."""
        keys = self.address(self._see(x), side)
        q, k = self._project(keys, 0, 2)
        return weigh(q, k, allowed, bias=self._lean(x.shape[1], None, elapsed))

    def _see(self, x: Tensor) -> Tensor:
        values: Tensor = self.attention_norm(x) if self.config.norm == "pre" else x
        return values

    def _project(self, x: Tensor, first: int, end: int) -> Tensor:
        """Of the projections to queries (0), keys (1) and values (2) those from `first` to `end`, by heads."""
        columns = slice(first * self.config.width, end * self.config.width)
        return self._split(F.linear(x, self.query_key_value.weight[columns], self.query_key_value.bias[columns]))

    def _mix(
        self, queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor, lean: Callable[[], Tensor | None]
    ) -> Tensor:
        B, Q, D = queries.shape
        if queries is values:
            q, k, v = self._split(self.query_key_value(values))
        elif keys is values:
            (q,), (k, v) = self._project(queries, 0, 1), self._project(values, 1, 3)
        elif queries is keys:
            (q, k), (v,) = self._project(keys, 0, 2), self._project(values, 2, 3)
        else:
            (q,), (k,), (v,) = (self._project(x, place, place + 1) for place, x in enumerate((queries, keys, values)))
        dropout = self.attention_dropout if self.training else 0.0
        mixed = attend(q, k, v, allowed, dropout=dropout, bias=lean())  # (B, H, Q, D/H)
        out: Tensor = self.attention_out(mixed.transpose(1, 2).reshape(B, Q, D))
        return out

    def _lean(self, T: int, at: Tensor | None, elapsed: Elapsed | None) -> Tensor | None:
        """The bias (1 or B, H, T, T) of keys by distance and time, with positions `at` (B, Q) theirs: (B, H, Q, T)."""
        by_distance = self._lean_by_distance(T, at) if self.config.positions == "relative" else None
        if not self.config.relative_time:
            return by_distance
        assert elapsed is not None  # noqa: S101 - networks with `relative_time` measure it
        by_time: Tensor = self.time_bias(elapsed if at is None else elapsed.pick(at))
        return by_time if by_distance is None else by_time + by_distance

    def _lean_by_distance(self, T: int, at: Tensor | None) -> Tensor:
        """Raffel et al. 2020, section 2.1, without their buckets: a number a distance, as Zhai et al. 2024 have it."""
        column = torch.arange(T, device=self.distance_bias.device)
        bias = self.distance_bias[:, column[:, None] - column + self.config.max_length - 1]
        if at is None:
            return bias[None]
        return bias.index_select(1, at.flatten()).view(-1, *at.shape, T).transpose(0, 1)

    def _split(self, x: Tensor) -> Tensor:
        """One, two or three times D columns (B, T, -1) by heads: (-1, B, H, T, D/H)."""
        B, T, columns = x.shape
        D, H = self.config.width, self.config.heads
        return x.view(B, T, columns // D, H, D // H).permute(2, 0, 3, 1, 4)

    def _feed(self, x: Tensor) -> Tensor:
        activate = F.gelu if self.config.activation == "gelu" else F.relu  # GELU(x) = x Phi(x), exactly
        out: Tensor = self.outer(activate(self.inner(x)))
        return out

    def _join(self, x: Tensor, branch: Tensor, norm: nn.Module) -> Tensor:
        branch = drop(branch, self.config.dropout, self.training)
        joined = x + branch if self.config.residual else branch
        return norm(joined) if self.config.norm == "post" else joined


class Transformer(SequenceNetwork):
    """Layers of self-attention over a history."""

    config: PaperConfig

    def __init__(self, config: PaperConfig, item_count: int) -> None:
        super().__init__(config, item_count, tie_embeddings=config.tie_embeddings)
        if config.relative_time and TIMES not in self.event_inputs:
            self.event_inputs = (*self.event_inputs, TIMES)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_length, config.width))
        self.layers = nn.ModuleList(self.make_layer() for _ in range(config.layers))
        self.last_norm = make_norm(config) if config.norm == "pre" else nn.Identity()

    def make_layer(self) -> Layer:
        return Layer(self.config)

    def read_items(self, item_ids: Tensor) -> Tensor:
        """Embeddings (B, T, D) of item_ids (B, T) as they are read."""
        read: Tensor = self.items(item_ids)
        return read

    def place(self, tokens: Tensor, item_ids: Tensor, *events: Tensor) -> tuple[Tensor, Side]:  # noqa: ARG002 - for side information
        """What enters the first layer for embeddings (B, T, D) of item_ids (B, T), and the side inputs of all layers.

        Here: learned positions are added, if there are any, and there are no side inputs.
        """
        if self.config.positions != "learned":
            return tokens, ()
        return tokens + self.positions[self.config.max_length - tokens.shape[1] :], ()

    def read_times(self, item_ids: Tensor, events: Sequence[Tensor]) -> Tensor:
        """The times (B, T) among events (B, T), 0 where they are not known; in training those of some rows are not."""
        if not events:
            return torch.zeros_like(item_ids)
        times = events[self.event_inputs.index(TIMES)]
        if self.training:
            times = times * (torch.rand_like(times[:, :1], dtype=torch.float32) >= self.config.event_dropout)
        return times

    def run_layers(
        self, x: Tensor, allowed: Tensor, at: Tensor | None, side: Side, elapsed: Elapsed | None = None
    ) -> Tensor:
        """Take x (B, T, D) through all layers, the last one at the positions `at` alone, if there are any."""
        for number, layer in enumerate(self.layers, 1):
            x = layer(x, allowed, at if number == len(self.layers) else None, side, elapsed)
        normed: Tensor = self.last_norm(x)
        return normed

    def weigh(self, item_ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """The attention weights (B, H, T, T), queries before keys, of each layer while `encode` takes the same input.

        Rows of padding mean nothing.
        """
        weights: list[Tensor] = []
        hooks = [
            layer.register_forward_pre_hook(lambda layer, inputs: weights.append(layer.weigh(*inputs[:2], *inputs[3:])))
            for layer in self.layers
        ]
        try:
            self.encode(item_ids, lengths)
        finally:
            for hook in hooks:
                hook.remove()
        return weights


def make_norm(config: PaperConfig) -> nn.Module:
    """LayerNorm, or nothing in a network without norms."""
    return nn.Identity() if config.norm == "none" else nn.LayerNorm(config.width)

"""A trained network rewritten for serving: the state at [mask] alone, by fewer products, each of them exact algebra.

- The last layer is worked out at [mask] only, the last column of a right-aligned row.
- There a head's weights are softmax(x W_K^T (W_Q m + b_Q)), so that one matrix W_K^T W_Q asks the tokens x themselves:
  no key is formed, and b_K, which adds the same to all of a query's weights, drops out. What the head answers,
  W_O W_V (a x) + W_O b_V + b_O, wants the mixed tokens a x only: no value is formed either.
- In the other layers the scale of the query stands in its weights, b_K drops out, and b_V moves behind the weights,
  which sum to 1. Tokens are rows of one matrix: ONNX Runtime adds biases within such products, and leaves LayerNorm
  alone, which it is slower at once it has fused it with the sum before it.

Shapes as in model/nets/transformer.py.
"""

import copy
from typing import TypeGuard

import torch
from torch import Tensor, nn

from model.nets.network import SequenceNetwork
from model.nets.transformer import Layer, Side, Transformer

CONTENT_ATTENTION = ("learned", "none")
"""Positions that come in with the tokens. Others enter attention itself, where keys and values must be formed."""


class LastState(nn.Module):
    """A network as (B, T), (B) -> (B, D): the state at [mask], ready for the item table; and what its rules add."""

    def __init__(self, network: SequenceNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, item_ids: Tensor, lengths: Tensor, *events: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Take right-aligned item_ids and events (B, T), lengths (B). Returns (B, D), with rules also (B, V + 2)."""
        hidden = self.network.encode(item_ids, lengths, None, *events)
        # A rewritten network gives the last column alone: no operator adds an axis that the next one takes away.
        state = self.network.read_head(hidden if hidden.dim() == 2 else hidden[:, -1])
        return state if self.network.rules is None else (state, self.network.rules(item_ids))


def can_rewrite(network: SequenceNetwork) -> TypeGuard[Transformer]:
    """Whether this module knows all that happens in a network's layers. Others are exported as they are."""
    return (
        isinstance(network, Transformer)
        and network.config.positions in CONTENT_ATTENTION
        and not network.config.relative_time
        and all(type(layer) is Layer for layer in network.layers)
    )


def rewrite(network: SequenceNetwork) -> LastState:
    """The serving form of a network, which stays as it is; the network itself where `can_rewrite` says no."""
    if not can_rewrite(network):
        return LastState(network)
    network = copy.deepcopy(network).eval()
    *others, last = (layer for layer in network.layers if isinstance(layer, Layer))
    network.layers = nn.ModuleList([*(_TokenLayer(layer) for layer in others), _MaskLayer(last)])
    return LastState(network).to(network.items.weight.dtype)


class _TokenLayer(nn.Module):
    """A layer at all tokens."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        weight, bias = _split_heads(layer)
        out, out_bias = _read_out(layer)
        D = layer.config.width
        scale = (D // layer.config.heads) ** -0.5
        self.query_key_value = _make_linear(
            torch.cat([weight[0] * scale, weight[1], weight[2]]).flatten(0, 1),
            torch.cat([bias[0].flatten() * scale, torch.zeros(2 * D, dtype=bias.dtype)]),
        )
        self.out = _make_linear(out, out @ bias[2].flatten() + out_bias)

    def forward(self, x: Tensor, allowed: Tensor, _at: None, _side: Side, _elapsed: None) -> Tensor:
        """Take x (B, T, D) and allowed (B, 1, 1 or T, T). Returns (B, T, D)."""
        B, T, D = x.shape
        H = self.layer.config.heads
        x = x.reshape(B * T, D)
        seen = self.layer.attention_norm(x) if self.layer.config.norm == "pre" else x
        by_head = self.query_key_value(seen).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        q, k, v = (by_head[place] for place in range(3))  # which becomes one split, where unpacking is three slices
        weights = torch.softmax(q @ k.transpose(-2, -1) + _forbid(allowed), dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(B * T, D)
        joined: Tensor = self.layer.join(x, self.out(mixed))
        return joined.view(B, T, D)


class _MaskLayer(nn.Module):
    """A layer at the last column alone."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        weight, bias = _split_heads(layer)
        out, out_bias = _read_out(layer)
        H, D = layer.config.heads, layer.config.width
        scale = (D // H) ** -0.5
        key = weight[1].transpose(1, 2)  # (H, D, D/H)
        self.ask = _make_linear((key @ weight[0]).flatten(0, 1) * scale, (key @ bias[0][..., None]).flatten() * scale)
        by_head = out.view(D, H, D // H).transpose(0, 1)  # (H, D, D/H)
        self.answer = _make_linear((by_head @ weight[2]).transpose(0, 1).flatten(1), out @ bias[2].flatten() + out_bias)

    def forward(self, x: Tensor, allowed: Tensor, _at: Tensor, _side: Side, _elapsed: None) -> Tensor:
        """Take x (B, T, D) and allowed (B, 1, 1 or T, T). Returns (B, D)."""
        B, _, D = x.shape
        seen = self.layer.attention_norm(x) if self.layer.config.norm == "pre" else x
        asked = self.ask(seen[:, -1]).view(B, -1, D)
        weights = torch.softmax(asked @ seen.transpose(1, 2) + _forbid(allowed[:, 0, -1:]), dim=-1)  # (B, H, T)
        joined: Tensor = self.layer.join(x[:, -1], self.answer((weights @ seen).flatten(1)))
        return joined


def _forbid(allowed: Tensor) -> Tensor:
    """What is added to attention scores: 0 where a token may be seen."""
    return torch.where(allowed, 0.0, -torch.inf)


def _split_heads(layer: Layer) -> tuple[Tensor, Tensor]:
    """Weights (3, H, D/H, D) and biases (3, H, D/H) of queries, keys and values, in float64."""
    D, H = layer.config.width, layer.config.heads
    projection = layer.query_key_value
    return (
        projection.weight.detach().double().view(3, H, D // H, D),
        projection.bias.detach().double().view(3, H, D // H),
    )


def _read_out(layer: Layer) -> tuple[Tensor, Tensor]:
    return layer.attention_out.weight.detach().double(), layer.attention_out.bias.detach().double()


def _make_linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    return linear

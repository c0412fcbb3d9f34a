"""A GRU as one ONNX operator. PyTorch's exporter would unroll it over the length of its example."""

import copy

import torch
from torch import Tensor, nn

from model.nets.network import SequenceNetwork


class GruOperator(nn.Module):
    """What an nn.GRU with batches first computes, for export alone: PyTorch cannot run it."""

    def __init__(self, gru: nn.GRU) -> None:
        super().__init__()
        self.width, self.layers = gru.hidden_size, gru.num_layers
        for layer in range(gru.num_layers):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                reset, update, new = getattr(gru, f"{name}_l{layer}").detach().chunk(3)
                self.register_buffer(f"{name}_{layer}", torch.cat([update, reset, new])[None])  # ONNX's order

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Take (B, T, D). Returns (B, T, D) and no last state."""
        x = x.transpose(0, 1)
        for layer in range(self.layers):
            weights = [getattr(self, f"{name}_{layer}") for name in ("weight_ih", "weight_hh")]
            bias = torch.cat([getattr(self, f"{name}_{layer}") for name in ("bias_ih", "bias_hh")], dim=1)
            T, B, _ = x.shape
            x = torch.onnx.ops.symbolic(
                "GRU",
                (x, *weights, bias),
                {"hidden_size": self.width, "linear_before_reset": 1},  # as PyTorch does it
                dtype=x.dtype,
                shape=(T, 1, B, self.width),
                version=14,
            ).squeeze(1)
        return x.transpose(0, 1), None


def use_operators(network: SequenceNetwork) -> SequenceNetwork:
    """A copy of a network whose recurrent parts are ONNX operators."""
    copied = copy.deepcopy(network)
    for name, module in network.named_modules():
        if isinstance(module, nn.GRU):
            copied.set_submodule(name, GruOperator(module))
    return copied

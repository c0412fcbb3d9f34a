"""Dropout that is cheap on a CPU, where torch draws one number for each element, on one thread.

Here an int64 of torch's generator gives eight elements a byte of chance each. A share is rounded to 256ths, and what is
kept is scaled by the share that is really kept, so that expectations are exact.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_LEVELS = 256


def drop(x: Tensor, share: float, training: bool) -> Tensor:
    """Set a share of x to 0 and scale the rest, while training."""
    if not training or share == 0 or x.device.type != "cpu":
        return F.dropout(x, share, training)
    dropped: Tensor = _Dropout.apply(x, share)  # type: ignore[no-untyped-call]  # torch leaves it without types
    return dropped


def draw_kept(shape: torch.Size, share: float) -> Tensor:
    """Which elements of a CPU tensor to keep, in bytes: torch turns these into floats far quicker than booleans."""
    count = shape.numel()
    chances = torch.empty(-(-count // 8), dtype=torch.int64).random_(-(2**63), None).view(torch.uint8)
    return (chances >= _round_share(share))[:count].view(torch.uint8).view(shape)


def scale_kept(share: float) -> float:
    """What `draw_kept` keeps is to be multiplied by this."""
    return _LEVELS / (_LEVELS - _round_share(share))


def _round_share(share: float) -> int:
    return min(_LEVELS - 1, max(1, round(share * _LEVELS)))


class _Dropout(torch.autograd.Function):
    """Keeps a byte an element for the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:  # noqa: ANN401 - torch's own
        kept = draw_kept(x.shape, share)
        ctx.save_for_backward(kept)
        ctx.scale = scale_kept(share)
        return kept.to(x.dtype).mul_(x).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 - torch's own
        (kept,) = ctx.saved_tensors
        return kept.to(gradients[0].dtype).mul_(gradients[0]).mul_(ctx.scale), None

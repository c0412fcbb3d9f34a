"""softmax(Q K^T / sqrt(D/H)) V with dropout on the weights (Vaswani et al. 2017, section 3.2.1).

torch's fused kernels do it on a GPU, and on a CPU as long as nothing is dropped. Dropping on a CPU they fall back to
(B, H, T, T) tensors that pass through memory a dozen times; here few rows at a time do, so that they stay in the cache.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from model.nets.dropout import draw_kept, scale_kept

_WEIGHTS_AT_ONCE = 2**19
"""Attention weights in work at a time: 2 MiB, about a core's cache."""


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, *, dropout: float) -> Tensor:
    """Take q (B, H, Q, D/H), k, v (B, H, T, D/H), allowed (B, 1, 1 or Q, T), true where a query may see a key.

    Returns as q, for any number Q of queries.

    Every query must be allowed a key.
    """
    if dropout and q.device.type == "cpu":
        mixed: Tensor = _DroppingAttention.apply(q, k, v, allowed, dropout)  # type: ignore[no-untyped-call]  # torch leaves it without types
        return mixed
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout)


def weigh(q: Tensor, k: Tensor, allowed: Tensor) -> Tensor:
    """The weights (B, H, T, T) by which `attend`, dropping nothing, mixes the rows of v; 0 where a key is not allowed.

    For those who want to see them: the kernels of `attend` give none.
    """
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=-1)


class _DroppingAttention(torch.autograd.Function):
    """For the way back it keeps the weights and a byte each that says whether it was dropped."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:  # noqa: ANN401 - torch's own
        q, k, v, allowed, dropout = inputs
        B, H, Q, size = q.shape
        T = k.shape[2]
        ctx.rows = max(1, _WEIGHTS_AT_ONCE // (H * Q * T))
        ctx.scale, ctx.keep_scale = size**-0.5, scale_kept(dropout)
        kept = draw_kept(torch.Size((B, H, Q, T)), dropout)
        forbidden = torch.zeros(allowed.shape, dtype=q.dtype).masked_fill_(~allowed, -torch.inf)
        weights, out = q.new_empty(B, H, Q, T), torch.empty_like(q)
        for part in _split(B, ctx.rows):
            scores = (q[part] * ctx.scale) @ k[part].transpose(-2, -1)
            torch.softmax(scores.add_(forbidden[part]), dim=-1, out=weights[part])
            out[part] = scores.copy_(kept[part]).mul_(weights[part]) @ (v[part] * ctx.keep_scale)
        ctx.save_for_backward(q, k, v, weights, kept)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:  # noqa: ANN401 - torch's own
        q, k, v, weights, kept = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for part in _split(len(q), ctx.rows):
            upper, weight = gradients[0][part] * ctx.keep_scale, weights[part]
            used = kept[part].to(weight.dtype).mul_(weight)  # the weights that were not dropped
            grad_v[part] = used.transpose(-2, -1) @ upper
            flow = (upper @ v[part].transpose(-2, -1)).mul_(used)  # P dP
            flow.addcmul_(weight, flow.sum(dim=-1, keepdim=True), value=-1).mul_(ctx.scale)  # P (dP - sum of P dP)
            grad_q[part] = flow @ k[part]
            grad_k[part] = flow.transpose(-2, -1) @ q[part]
        return grad_q, grad_k, grad_v, None, None


def _split(count: int, step: int) -> list[slice]:
    return [slice(begin, begin + step) for begin in range(0, count, step)]

"""Cross-entropy by a few rows at a time, so that no more than those rows' logits ever exist.

Logits of M targets over V items are by far the largest tensors of a training, and plain autograd holds several of them.
Here each slice's logits give its loss and its gradients at once, in the cache of a CPU (the idea of Liger's and Apple's
fused cross-entropies; Wijmans et al. 2025). The numbers are those of the plain formula.
"""

from typing import Any

import torch
from torch import Tensor

_LOGITS_AT_ONCE = {"cpu": 2**21, "cuda": 2**27}
"""8 MiB for a core's cache; half a GiB where launching kernels is what costs."""


def cross_entropy_sum(read: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Sum of -log softmax(read table^T + bias) at the targets, for read (M, D), table (V, D), bias (V), targets (M)."""
    loss: Tensor = _CrossEntropy.apply(read, table, bias, targets, None, None)  # type: ignore[no-untyped-call]  # torch leaves it without types
    return loss


def sampled_cross_entropy_sum(
    read: Tensor, table: Tensor, bias: Tensor, *, targets: Tensor, positive: Tensor, negatives: Tensor
) -> Tensor:
    """Sum of -log(exp s+ / (exp s+ + sum exp s-)), s+ being `positive` (M) and s- = read table^T + bias.

    table (K, D) and bias (K) are those of the `negatives` (K); one that is a row's own target does not count in it.
    """
    loss: Tensor = _CrossEntropy.apply(read, table, bias, targets, positive, negatives)  # type: ignore[no-untyped-call]  # torch leaves it without types
    return loss


class _CrossEntropy(torch.autograd.Function):
    """Finds the gradients on the way forward: they need no more than the logits at hand."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:  # noqa: ANN401 - torch's own
        read, table, bias, targets, positive, negatives = inputs
        grad_read, grad_table, grad_bias = torch.empty_like(read), torch.zeros_like(table), torch.zeros_like(bias)
        grad_positive = None if positive is None else torch.empty_like(positive)
        total = torch.zeros((), device=read.device)
        step = max(1, _LOGITS_AT_ONCE[read.device.type] // len(table))
        for begin in range(0, len(read), step):
            part = slice(begin, begin + step)
            rows, target = read[part], targets[part, None]
            scores = torch.addmm(bias, rows, table.t())
            if positive is not None:
                scores.masked_fill_(negatives == target, -torch.inf)
                scores = torch.cat([positive[part, None], scores], dim=1)
                target = torch.zeros_like(target)
            logs = torch.log_softmax(scores, dim=1, dtype=torch.float32)
            total -= logs.gather(1, target).sum()
            flow = logs.exp_().scatter_add_(1, target, logs.new_full(target.shape, -1.0))  # softmax - one-hot
            if grad_positive is not None:
                grad_positive[part] = flow[:, 0]
                flow = flow[:, 1:]
            grad_bias += flow.sum(dim=0)
            flow = flow.to(rows.dtype)
            grad_read[part] = flow @ table
            grad_table += flow.t() @ rows
        ctx.save_for_backward(grad_read, grad_table, grad_bias, grad_positive)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's own
        grad_read, grad_table, grad_bias, grad_positive = (
            None if gradient is None else gradients[0] * gradient for gradient in ctx.saved_tensors
        )
        return grad_read, grad_table, grad_bias, None, grad_positive, None

"""Data parallel training under torchrun: the processes draw the same batches, train every n-th row, add up gradients.

Every rank sees the same sums, and of what only one can know (to stop, the time, the validation) rank 0's word, so that
all do the same arithmetic on the same numbers and their weights stay equal bit for bit.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

_PATIENCE = timedelta(hours=2)
"""How long the others wait while rank 0 validates or tests."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Processes:
    """Which of how many processes this is. One process alone does without torch.distributed."""

    rank: int = 0
    world: int = 1
    device: torch.device | None = None

    @property
    def first(self) -> bool:
        """Whether this process validates, shows and writes."""
        return self.rank == 0

    def add_up(self, parameters: Iterable[Tensor], loss: Tensor) -> Tensor:
        """Put the sum of all ranks' gradients in place of this one's, in one all-reduce. Returns the sum of losses."""
        if self.world == 1:
            return loss
        trained = list(parameters)
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in trained]
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), loss.float().reshape(1)])
        dist.all_reduce(flat)
        for each, gradient in zip(trained, torch.split(flat[:-1], [each.numel() for each in trained]), strict=True):
            each.grad = gradient.view_as(each)
        return flat[-1]

    def agree(self, stop: bool, seconds: float) -> tuple[bool, float]:
        """Rank 0's wish to stop and clock, on which the learning rate may hang, for all."""
        if self.world == 1:
            return stop, seconds
        message = torch.tensor([stop, seconds], dtype=torch.float64, device=self.device)
        dist.broadcast(message, 0)
        return bool(message[0]), float(message[1])

    def broadcast(self, make: Callable[[], Value]) -> Value:
        """What `make` gives on rank 0, on all ranks; the others do not call it."""
        if self.world == 1:
            return make()
        message = [make() if self.first else None]
        dist.broadcast_object_list(message, 0, device=self.device)
        return message[0]  # type: ignore[return-value]  # rank 0's answer by now


ALONE = Processes()


@contextmanager
def join_processes(device: torch.device) -> Iterator[Processes]:
    """The processes that torchrun started with this process, if it did."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_PATIENCE)
    try:
        yield Processes(dist.get_rank(), world, device)
        dist.barrier()  # nobody closes connections while another is still in its last exchange
    finally:
        dist.destroy_process_group()

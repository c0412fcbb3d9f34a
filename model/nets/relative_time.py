"""Relative time in attention: how long before the question an event came says how much it is looked at.

To the product of a query with a key a number is added that a layer's head learns for the time between them, as HSTU
does (Zhai et al., ICML 2024, section 3.1: the relative attention bias by time) and TiSASRec, by intervals that each
user's own shortest one divides, before it (Li et al., WSDM 2020). A query's time is that of the event that it asks for:
in a history the event's own, at [mask] that of the request.

HSTU cuts the logarithm of the time into buckets, one number each. Here the numbers are learned at whole octaves of
1 + seconds, and what lies between two is interpolated: the graph and PyTorch, which may round a logarithm otherwise,
cannot fall into two buckets. What is learned is the step from each octave to the next, so that a time longer than all
that training met has the number of the longest one.

Shapes: B batch, Q queries, T tokens, H heads, R octaves.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.nets.network import pick_positions

OCTAVES = 32
"""R: up to 136 years, before the query and after it."""


class Elapsed(NamedTuple):
    """The time between queries and keys (B, Q, T): the octave below it from 0 on, what lies above, and if it is known.

    R stands for no time at all; keys after their query have less.
    """

    octave: Tensor
    above: Tensor
    known: Tensor

    def pick(self, at: Tensor) -> "Elapsed":
        """That of the queries at positions (B, Q) alone."""
        return Elapsed(*(pick_positions(part, at) for part in self))


def measure_elapsed(asked_ms: Tensor, came_ms: Tensor, *, causal: bool) -> Elapsed:
    """From the times of queries and of keys (B, T) in epoch milliseconds, 0 where nobody knows.

    A causal network is asked about nothing that came later: what says so came just now.
    """
    seconds = (asked_ms[:, :, None] - came_ms[:, None, :]).float() / 1000
    if causal:
        seconds = seconds.clamp(min=0)
    octaves = torch.log1p(seconds.abs()) * seconds.sign() / math.log(2) + OCTAVES
    octave = octaves.floor().clamp(0, 2 * OCTAVES - 1)
    known = (asked_ms != 0)[:, :, None] & (came_ms != 0)[:, None, :]
    return Elapsed(octave.long(), (octaves - octave).clamp(0, 1), known)


class TimeBias(nn.Module):
    """What one layer's heads add to the products of queries and keys."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.later = nn.Parameter(torch.empty(heads, OCTAVES))
        """Steps from no time to ever longer ones, of keys after their query."""
        self.earlier = nn.Parameter(torch.empty(heads, OCTAVES))
        self.unknown = nn.Parameter(torch.empty(heads, 1))

    def forward(self, elapsed: Elapsed) -> Tensor:
        """The bias (B, H, Q, T); that of no time at all is 0."""
        below = torch.cat([self.later.cumsum(dim=1).flip(1), torch.zeros_like(self.unknown)], dim=1)
        above = torch.cat([torch.zeros_like(self.unknown), self.earlier.cumsum(dim=1)], dim=1)
        at_octaves = torch.cat([below, above[:, 1:]], dim=1)  # (H, 2 R + 1)
        table = torch.cat(
            [at_octaves[:, :-1], at_octaves[:, 1:] - at_octaves[:, :-1]]
        ).t()  # (2 R, 2 H): both in one look
        start, slope = F.embedding(elapsed.octave, table).chunk(2, dim=-1)  # (B, Q, T, H) each
        bias = start + elapsed.above[..., None] * slope
        return torch.where(elapsed.known[..., None], bias, self.unknown[:, 0]).permute(0, 3, 1, 2)

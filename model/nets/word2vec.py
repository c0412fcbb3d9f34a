"""CBOW and Skip-gram over histories (Mikolov et al. 2013; item2vec, Barkan & Koenigstein 2016).

CBOW is BERT4Rec's one-layer case with uniform attention, no positions and untied tables (Sun et al. 2019): the mean of
what else is in the window predicts a masked item. Skip-gram is the reverse: one other item of the window at a time
predicts it, drawn anew for each place. Answers take the mean.
"""

import torch
from torch import Tensor, nn

from model.nets.configs import NetworkConfig
from model.nets.network import SequenceNetwork, mark_real


class Cbow(SequenceNetwork):
    """The mean of the window's items ranks the masked one."""

    causal = False

    def __init__(self, config: NetworkConfig, item_count: int) -> None:
        super().__init__(config, item_count, tie_embeddings=False)
        self.item_bias = nn.Parameter(torch.zeros(item_count))
        self.reset_parameters()

    def encode(self, item_ids: Tensor, lengths: Tensor, at: Tensor | None = None, *_: Tensor) -> Tensor:
        """Take right-aligned item_ids (B, T), T <= N, lengths (B), positions (B, Q) or none. Returns (B, T or Q, D).

        A window without any other item takes the embedding of [mask].
        """
        real = mark_real(item_ids, lengths)
        shown = real & (item_ids != self.item_count + 1)
        shown = shown | (real & ~shown.any(dim=1, keepdim=True))
        return self._mix(item_ids, shown, item_ids if at is None else at)

    def _mix(self, item_ids: Tensor, shown: Tensor, positions: Tensor) -> Tensor:
        """The state at each of some positions (B, Q), of items shown (B, T): (B, Q, D)."""
        weights = shown / shown.sum(dim=1, keepdim=True)
        mean: Tensor = (weights[:, :, None] * self.items(item_ids)).sum(dim=1, keepdim=True)
        return mean.expand(-1, positions.shape[1], -1)


class SkipGram(Cbow):
    """While training, one item of the window at a time."""

    def _mix(self, item_ids: Tensor, shown: Tensor, positions: Tensor) -> Tensor:
        if not self.training:
            return super()._mix(item_ids, shown, positions)
        drawn = torch.multinomial(shown.float(), positions.shape[1], replacement=True)
        chosen: Tensor = self.items(item_ids.gather(1, drawn))
        return chosen

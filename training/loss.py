"""The Cloze loss: full softmax cross-entropy over the V items, at masked tokens only."""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.nets.bert4rec import Bert4Rec
from training.batches import Batch


def cloze_loss(network: Bert4Rec, batch: Batch, device: torch.device) -> Tensor:
    """Mean negative log-likelihood of the M masked items (Sun et al. 2019, equation 8).

    Only the masked rows go through the head: (M, V) logits, not (B, T, V).
    """
    item_ids = torch.from_numpy(batch.input.item_ids).to(device)
    lengths = torch.from_numpy(batch.input.lengths).to(device)
    places = torch.from_numpy(batch.places).to(device)
    targets = torch.from_numpy(batch.targets).to(device)
    hidden = network.encode(item_ids, lengths)
    masked = hidden.flatten(0, 1).index_select(0, places)
    return F.cross_entropy(network.score_items(masked), targets)

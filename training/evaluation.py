"""Full ranking: every item is a candidate, what the user has already seen is removed, the target never is."""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.nets.bert4rec import Bert4Rec
from training.errors import Diverged
from training.histories import Histories
from training.metrics import measure_ranks
from training.split import Questions

_SCORES_AT_ONCE = 2**24


class Scorer(Protocol):
    """Whatever can score all items after each history: B histories -> (B, V), column j for the item of index j + 1."""

    @property
    def item_count(self) -> int:
        """V."""

    def score(self, histories: Histories) -> Tensor:
        """Scores of all items, a tensor that the caller may overwrite."""


class NetworkScorer:
    """A BERT4Rec that appends [mask] to each history and reads its output there."""

    def __init__(self, network: Bert4Rec) -> None:
        self.network = network
        self.item_count = network.config.item_count

    @torch.inference_mode()
    def score(self, histories: Histories) -> Tensor:
        """Scores of all items (B, V), on the network's device."""
        config = self.network.config
        item_ids, lengths = histories.ask_next(max_length=config.max_length, mask_index=config.item_count + 1)
        device = self.network.item_bias.device
        self.network.eval()
        scores: Tensor = self.network(torch.from_numpy(item_ids).to(device), torch.from_numpy(lengths).to(device))
        return scores


def rank_targets(scorer: Scorer, questions: Questions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many unseen items score higher than each target, and how many others score the same. Both (B)."""
    greater, ties = np.zeros(len(questions), dtype=np.int64), np.zeros(len(questions), dtype=np.int64)
    by_length = np.argsort(questions.histories.lengths, kind="stable")  # so that batches hold little padding
    step = int(np.clip(_SCORES_AT_ONCE // scorer.item_count, 1, 256))
    for begin in range(0, len(questions), step):
        rows = by_length[begin : begin + step]
        greater[rows], ties[rows] = _rank_batch(scorer, questions.select(rows))
    return greater, ties


@torch.inference_mode()
def _rank_batch(scorer: Scorer, questions: Questions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    scores = scorer.score(questions.histories)
    if not bool(torch.isfinite(scores).all()):
        raise Diverged("a score is no finite number: nothing can be ranked by it")
    columns = torch.from_numpy(questions.targets.astype(np.int64) - 1).to(scores.device)[:, None]
    target = scores.gather(1, columns)
    remove_seen(scores, questions.histories)
    scores.scatter_(1, columns, target)  # a repeated item is a target like any other
    greater = (scores > target).sum(dim=1)
    ties = (scores == target).sum(dim=1) - 1
    return greater.cpu().numpy(), ties.cpu().numpy()


def remove_seen(scores: Tensor, histories: Histories) -> None:
    """Set the scores (B, V) of every item of each history to -inf, in place."""
    rows, items = histories.flatten()
    places = torch.from_numpy(rows * scores.shape[1] + items - 1).to(scores.device)
    scores.view(-1)[places] = -torch.inf


def evaluate(scorer: Scorer, questions: Questions) -> dict[str, NDArray[np.float64]]:
    """Every metric of every question, by name."""
    return measure_ranks(*rank_targets(scorer, questions))

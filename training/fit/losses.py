"""The losses: how well the states at the trained positions rank the items there.

Symbols: M trained positions, K negatives, s+ and s- the scores of target and negatives, V items.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from model.nets.network import Network, SequenceNetwork, UserNetwork
from training.fit.batches import Batch
from training.fit.softmax import cross_entropy_sum, sampled_cross_entropy_sum
from training.recipe import TrainRecipe


def measure_loss(network: Network, batch: Batch, device: torch.device, recipe: TrainRecipe) -> Tensor:
    """Sum of the recipe's loss over the M trained positions of a batch.

    Only these rows go through the head; sampled losses score K negatives, whatever V is.
    """
    item_ids, lengths = (torch.from_numpy(array).to(device) for array in batch.input)
    positions, targets = torch.from_numpy(batch.positions).to(device), torch.from_numpy(batch.targets).to(device)
    if isinstance(network, UserNetwork):
        users = torch.from_numpy(batch.users).to(device)
        states = network.encode(item_ids, lengths, users).flatten(0, 1).index_select(0, positions)
    else:
        assert isinstance(network, SequenceNetwork)  # noqa: S101 - there are no others
        events = [torch.from_numpy(features).to(device) for features in batch.events]
        states = _encode_positions(network, item_ids, lengths, positions, events)
    read = network.read_head(states)  # (M, S)
    if batch.negatives is None:
        return cross_entropy_sum(read, network.table, network.item_bias, targets)
    negatives = torch.from_numpy(batch.negatives).to(device)
    if recipe.loss == "sampled_softmax":
        # Klenitskiy & Vasilev 2023; uniform draws need no correction by their probabilities, which would cancel out.
        # All rows are looked up at once, for one gradient of the table's size.
        picked, M = network.pick_rows(torch.cat([targets, negatives])), len(targets)
        rows = picked[M:]
        positive = (read * picked[:M]).sum(dim=-1) + network.pick_bias(targets, picked[:M])
        bias = network.pick_bias(negatives, rows)
        return sampled_cross_entropy_sum(read, rows, bias, targets=targets, positive=positive, negatives=negatives)
    positive = network.score_columns(read, targets[:, None])[:, 0]
    negative = network.score_columns(read, negatives).masked_fill(negatives == targets[:, None], -torch.inf)
    match recipe.loss:
        case "gbce":
            beta = calibrate(negative.shape[1], network.item_count, recipe.gbce_t)
            losses = calibrated_cross_entropy(positive, negative, beta)
        case "bpr":
            losses = pairwise_ranking(positive, negative)
        case "bpr_max":
            losses = rank_highest(positive, negative, recipe.score_penalty)
        case "top1_max":
            losses = top_one(positive, negative)
        case _:
            losses = binary_cross_entropy(positive, negative)
    return losses.sum()


def _encode_positions(
    network: SequenceNetwork, item_ids: Tensor, lengths: Tensor, positions: Tensor, events: Sequence[Tensor]
) -> Tensor:
    """The states (M, D) at positions of the flattened (B, T), in rising order.

    Where few positions of each row are trained, the last layer works out these alone: a row has as many as the row with
    the most of them, the spare ones at its end.
    """
    B, T = item_ids.shape
    rows, columns = positions // T, positions % T
    counts = torch.bincount(rows, minlength=B)
    Q = int(counts.max())
    if Q > T // 2:
        return network.encode(item_ids, lengths, None, *events).flatten(0, 1).index_select(0, positions)
    slots = rows * Q + torch.arange(len(positions), device=positions.device) - (counts.cumsum(0) - counts)[rows]
    at = positions.new_full((B * Q,), T - 1).index_copy_(0, slots, columns).view(B, Q)
    return network.encode(item_ids, lengths, at, *events).flatten(0, 1).index_select(0, slots)


def binary_cross_entropy(positive: Tensor, negative: Tensor) -> Tensor:
    """-log sigmoid(s+) - sum log(1 - sigmoid(s-)) of each target (M), SASRec's own (Kang & McAuley 2018, III.E)."""
    return F.softplus(-positive.float()) + F.softplus(negative.float()).sum(dim=1)


def calibrated_cross_entropy(positive: Tensor, negative: Tensor, beta: float) -> Tensor:
    """(-log sigmoid(s+ + c)^beta - sum log(1 - sigmoid(s- + c))) / (K + 1) of each target (M): gBCE.

    Petrov & Macdonald 2023, but for c = log(beta / K), where equal scores cost least: training need not begin by moving
    all scores there, with gradients some hundred times those that follow (the prior of Lin et al. 2017, section 3.3).
    A constant ranks nothing.
    """
    prior = math.log(beta / negative.shape[1])
    of_target, of_others = F.softplus(-positive.float() - prior), F.softplus(negative.float() + prior)
    return (beta * of_target + of_others.sum(dim=1)) / (negative.shape[1] + 1)


def pairwise_ranking(positive: Tensor, negative: Tensor) -> Tensor:
    """-log sigmoid(s+ - s-) of each target (M), the mean over its negatives: BPR (Rendle et al. 2009, section 4)."""
    return F.softplus(negative.float() - positive.float()[:, None]).mean(dim=1)


def rank_highest(positive: Tensor, negative: Tensor, penalty: float) -> Tensor:
    """-log sum w sigmoid(s+ - s-) + penalty sum w s-^2 of each target (M), w = softmax of the negatives' scores.

    BPR-max (Hidasi & Karatzoglou 2018, section 3.2): the negatives that score highest are the ones to learn from.
    """
    logs = torch.log_softmax(negative.float(), dim=1)
    apart = F.logsigmoid(positive.float()[:, None] - negative.float())
    squares = negative.float().masked_fill(negative == -torch.inf, 0).square()
    return -torch.logsumexp(logs + apart, dim=1) + penalty * (logs.exp() * squares).sum(dim=1)


def top_one(positive: Tensor, negative: Tensor) -> Tensor:
    """Sum of w (sigmoid(s- - s+) + sigmoid(s-^2)) of each target (M): TOP1-max of the same section."""
    weights = torch.softmax(negative.float(), dim=1)
    squares = negative.float().masked_fill(negative == -torch.inf, 0).square()
    return (weights * (torch.sigmoid(negative.float() - positive.float()[:, None]) + torch.sigmoid(squares))).sum(dim=1)


def calibrate(count: int, item_count: int, gbce_t: float) -> float:
    """The beta of gBCE, a (t (1 - 1/a) + 1/a) for the sampling rate a = K / (V - 1) (Petrov & Macdonald 2023).

    t = 0 gives 1, the plain binary cross-entropy; t = 1 gives a, which undoes the overconfidence of sampling.
    """
    rate = min(1.0, count / max(1, item_count - 1))
    return rate * (gbce_t * (1 - 1 / rate) + 1 / rate)

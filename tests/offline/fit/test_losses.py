"""Every loss against a naive computation, one target and one negative at a time."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from model.nets.network import UserNetwork
from model.nets.registry import make_network
from training.fit import softmax
from training.fit.batches import Samples
from training.fit.losses import calibrate, measure_loss
from training.fit.softmax import cross_entropy_sum, sampled_cross_entropy_sum
from training.recipe import TrainRecipe

CPU = torch.device("cpu")
V = 30
RECIPES = {
    "softmax": TrainRecipe(),
    "sampled_softmax": TrainRecipe(loss="sampled_softmax", negatives=7),
    "gbce": TrainRecipe(loss="gbce", negatives=7, gbce_t=0.6),
    "bce": TrainRecipe(loss="bce", negatives=2),
    "bpr": TrainRecipe(loss="bpr", negatives=2),
    "bpr_max": TrainRecipe(loss="bpr_max", negatives=7, score_penalty=0.5),
    "top1_max": TrainRecipe(loss="top1_max", negatives=7),
}
CASES = [
    *((network, loss) for network in ("bert4rec", "sasrec", "fpmc", "transrec") for loss in RECIPES),
    *(("ncf", loss) for loss in RECIPES if not loss.endswith("softmax")),
]


@pytest.fixture
def make_batch(make_histories):
    """A maker of (network, batch) over some random histories; keyword arguments are switches of the network."""

    def make(name, recipe, *, item_count=V, **switches):
        torch.manual_seed(0)
        draw = np.random.default_rng(0)
        rows = [draw.integers(1, min(V, item_count) + 1, length) for length in (6, 2, 1, 5, 9)]
        layers = {"heads": 2, "dropout": 0.0} if name in {"bert4rec", "sasrec"} else {}
        sizes = {"max_length": 6, "width": 16, **layers, **switches}
        network = make_network(name, item_count=item_count, user_count=len(rows), **sizes)
        with torch.no_grad():
            network.items.weight.normal_()
        samples = Samples(make_histories(rows), recipe, max_length=6, item_count=item_count, causal=network.causal)
        return network, samples.make_batch(samples.plan_epoch(0)[0], 0, 0)

    return make


def log_sigmoid(x):
    """log(1 / (1 + exp(-x))), spelled out."""
    return -math.log1p(math.exp(-x))


def naive_loss(scores, target, negatives, recipe):
    """The loss of one target by its scores (V) of all items."""
    negatives = [item for item in negatives if item != target]
    if recipe.loss == "gbce":
        rate = recipe.negatives / (V - 1)
        beta = rate * (recipe.gbce_t * (1 - 1 / rate) + 1 / rate)
        scores = [score + math.log(beta / recipe.negatives) for score in scores]
        below = sum(log_sigmoid(-scores[item]) for item in negatives)
        return -(math.log((1 / (1 + math.exp(-scores[target]))) ** beta) + below) / (recipe.negatives + 1)
    if recipe.loss == "softmax":
        return -math.log(math.exp(scores[target]) / sum(map(math.exp, scores)))
    if recipe.loss == "bpr":
        return -sum(log_sigmoid(scores[target] - scores[item]) for item in negatives) / recipe.negatives
    if recipe.loss in {"bpr_max", "top1_max"}:
        return naive_maximum(scores[target], [scores[item] for item in negatives], recipe)
    if recipe.loss == "sampled_softmax":
        others = sum(math.exp(scores[item]) for item in negatives)
        return -math.log(math.exp(scores[target]) / (math.exp(scores[target]) + others))
    below = sum(log_sigmoid(-scores[item]) for item in negatives)
    return -log_sigmoid(scores[target]) - below


def naive_maximum(target, negatives, recipe):
    """BPR-max and TOP1-max of one target's score by those of its negatives."""
    weights = [math.exp(score) / sum(map(math.exp, negatives)) for score in negatives]
    pairs = list(zip(weights, negatives, strict=True))
    if recipe.loss == "bpr_max":
        apart = sum(weight / (1 + math.exp(score - target)) for weight, score in pairs)
        return -math.log(apart) + recipe.score_penalty * sum(weight * score**2 for weight, score in pairs)
    return sum(w / (1 + math.exp(target - s)) + w / (1 + math.exp(-(s**2))) for w, s in pairs)


@pytest.mark.parametrize(("network", "loss"), CASES)
def test_a_loss_is_what_its_paper_says(make_batch, network, loss):
    """The sum over a batch equals the formula, place by place, on scores of the whole table."""
    recipe = RECIPES[loss]
    network, batch = make_batch(network, recipe)
    with torch.no_grad():
        given = [*batch.input, batch.users] if isinstance(network, UserNetwork) else batch.input
        states = network.encode(*map(torch.from_numpy, given)).flatten(0, 1)[torch.from_numpy(batch.positions)]
        scores = network.score_items(states).double().tolist()
    negatives = [()] * len(batch.targets)
    if batch.negatives is not None:
        assert recipe.negatives
        negatives = np.broadcast_to(batch.negatives, (len(batch.targets), recipe.negatives)).tolist()
    expected = sum(map(naive_loss, scores, batch.targets.tolist(), negatives, [recipe] * len(scores)))
    assert measure_loss(network, batch, CPU, recipe).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("mask_probability", [0.2, 0.9])
def test_trained_places_alone_give_the_gradient_of_all(make_batch, mask_probability):
    """Whether the last layer works out few places or all, the gradients are those of plain cross-entropy over all."""
    recipe = TrainRecipe(mask_probability=mask_probability, last_item_share=0.5)
    network, batch = make_batch("bert4rec", recipe)
    measure_loss(network, batch, CPU, recipe).backward()
    ours = [parameter.grad for parameter in network.parameters()]
    network.zero_grad(set_to_none=True)
    scores = network.score_items(network.encode(*map(torch.from_numpy, batch.input))).flatten(0, 1)
    positions, targets = torch.from_numpy(batch.positions), torch.from_numpy(batch.targets)
    torch.nn.functional.cross_entropy(scores[positions], targets, reduction="sum").backward()
    for mine, parameter in zip(ours, network.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("rows_at_once", [1, 4, 1000])
def test_the_sliced_softmax_is_torchs_cross_entropy(monkeypatch, rows_at_once):
    """Loss and all gradients equal those of F.cross_entropy, however the rows are sliced, however large the scores."""
    monkeypatch.setitem(softmax._LOGITS_AT_ONCE, "cpu", rows_at_once * V)
    torch.manual_seed(1)
    inputs = [torch.randn(size, requires_grad=True) for size in ((11, 8), (V, 8), (V,))]
    targets = torch.randint(0, V, (11,))
    for scale in (1.0, 100.0):
        scaled = [inputs[0] * scale, *inputs[1:]]
        ours = cross_entropy_sum(scaled[0], scaled[1], scaled[2], targets)
        naive = torch.nn.functional.cross_entropy(scaled[0] @ inputs[1].T + inputs[2], targets, reduction="sum")
        torch.testing.assert_close(ours, naive)
        for mine, theirs in zip(
            torch.autograd.grad(3 * ours, inputs, retain_graph=True),
            torch.autograd.grad(3 * naive, inputs),
            strict=True,
        ):
            torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("rows_at_once", [1, 4, 1000])
def test_the_sliced_sampled_softmax_has_the_gradients_of_its_formula(monkeypatch, rows_at_once):
    """Loss and all gradients equal those that autograd finds for the plain formula, accidental hits left out."""
    K = 7
    monkeypatch.setitem(softmax._LOGITS_AT_ONCE, "cpu", rows_at_once * K)
    torch.manual_seed(1)
    read, rows, bias, positive = inputs = [
        torch.randn(size, requires_grad=True) for size in ((11, 8), (K, 8), (K,), (11,))
    ]
    negatives, targets = torch.arange(K), torch.randint(0, 2 * K, (11,))
    ours = sampled_cross_entropy_sum(read, rows, bias, targets=targets, positive=positive, negatives=negatives)
    others = ((read @ rows.T + bias).exp() * (negatives != targets[:, None])).sum(dim=1)
    naive = -(positive.exp() / (positive.exp() + others)).log().sum()
    torch.testing.assert_close(ours, naive)
    gradients = (torch.autograd.grad(3 * loss, inputs) for loss in (ours, naive))
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_calibration_runs_from_overconfident_to_calibrated():
    """With t = 0 beta is 1, with t = 1 the sampling rate; all items as negatives leave nothing to correct."""
    assert calibrate(10, 101, 0.0) == pytest.approx(1.0)
    assert calibrate(10, 101, 1.0) == pytest.approx(0.1)
    assert calibrate(100, 101, 0.75) == pytest.approx(1.0)


def test_calibrated_cross_entropy_begins_where_equal_scores_cost_least(make_batch):
    """No common shift of all scores would lower it: from the first step on gradients tell the items apart."""
    recipe = RECIPES["gbce"]
    network, batch = make_batch("fmc", recipe)
    batch = replace(batch, negatives=(batch.targets[:, None] + np.arange(1, 8)) % V)  # none is its target
    with torch.no_grad():
        network.outputs.weight.zero_()
    measure_loss(network, batch, CPU, recipe).backward()
    assert network.item_bias.grad.abs().max() > 1e-3
    assert network.item_bias.grad.sum().item() == pytest.approx(0, abs=1e-6)


class _Sizes(TorchDispatchMode):
    """Notes the most elements that a tensor had, views and results of no size of the item table."""

    def __init__(self, item_count):
        super().__init__()
        self.largest = 0
        self._rows = {item_count, item_count + 2}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        """Run one operation and look at what it gives."""
        result = operation(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and not (tensor.dim() and tensor.shape[0] in self._rows):
                self.largest = max(self.largest, tensor.numel())
        return result


@pytest.mark.parametrize(("network", "loss"), CASES)
def test_sampled_losses_do_not_grow_with_the_catalogue(make_batch, network, loss):
    """With fifty times the items no tensor of a step grows but the table's own gradient, unlike the full softmax's.

    Both are too many items to score them all and pick those that are wanted.
    """
    largest = []
    for item_count in (500, 25_000):
        made, batch = make_batch(network, RECIPES[loss], item_count=item_count)
        with _Sizes(item_count) as sizes:
            measure_loss(made, batch, CPU, RECIPES[loss]).backward()
        largest.append(sizes.largest)
    assert (largest[0] == largest[1]) == (loss != "softmax"), largest

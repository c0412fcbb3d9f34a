"""The loop: right loss, learns, repeats bit for bit, resumes bit for bit, stops when it should."""

import itertools
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from model.nets.bert4rec import Bert4Rec
from model.nets.configs import Bert4RecConfig
from model.nets.registry import make_network
from training.data.split import leave_one_out
from training.environment import choose_bfloat16
from training.errors import CheckpointError, Diverged
from training.evaluation.metrics import average
from training.evaluation.ranking import NetworkScorer, evaluate
from training.fit import loop
from training.fit.batches import Samples
from training.fit.loop import Watcher, train
from training.fit.losses import measure_loss
from training.fit.optimizer import make_optimizer, schedule_rate
from training.recipe import TrainRecipe
from training.runs.checkpoint import load_checkpoint, load_weights, save_checkpoint, save_weights
from training.runs.progress import Progress

CPU = torch.device("cpu")


class Session:
    """A run without files but the checkpoint: what the command wires together."""

    def __init__(self, recipe, log, folder):
        self.recipe, self.folder = recipe, folder
        self.split = leave_one_out(log)
        torch.manual_seed(recipe.train.seed)
        self.network = make_network(recipe.model.name, item_count=len(log.vocabulary), **recipe.model.sizes)
        self.optimizer = make_optimizer(self.network, recipe.train)
        self.samples = Samples(
            self.split.train,
            recipe.train,
            max_length=recipe.model.max_length,
            item_count=len(log.vocabulary),
            causal=self.network.causal,
        )
        self.progress = Progress()
        self.epochs = []
        self.rates = []

    def load(self):
        """Go on from the checkpoint."""
        self.progress = load_checkpoint(self.folder / "last.safetensors", self.network, self.optimizer)
        return self

    def run(self, *, stop_after=math.inf):
        """Train, asked to stop after so many updates."""
        train(
            self.network,
            self.optimizer,
            samples=self.samples,
            validate=lambda: average(evaluate(NetworkScorer(self.network), self.split.validation)),
            recipe=self.recipe.train,
            progress=self.progress,
            watcher=Watcher(
                on_step=lambda *_: None,
                on_epoch=lambda epoch, _: self.epochs.append(epoch),
                keep=lambda: save_weights(self.folder / "kept.safetensors", self.network),
                save=lambda progress: save_checkpoint(
                    self.folder / "last.safetensors", self.network, self.optimizer, progress
                ),
                stop=lambda: self.progress.updates >= stop_after,
            ),
        )
        return self

    def state(self):
        """Everything that training changes, but for the clock."""
        moments = self.optimizer.state_dict()["state"]
        tensors = [*self.network.state_dict().values()]
        tensors += [moments[index][name] for index in sorted(moments) for name in sorted(moments[index])]
        return tensors, replace(self.progress, seconds=0.0, cpu_seconds=0.0, epoch_seconds=0.0)


def _same(left, right):
    return left[1] == right[1] and all(torch.equal(a, b) for a, b in zip(left[0], right[0], strict=True))


def test_time_in_which_a_process_waits_is_no_cpu_time(make_log, cycles, small_recipe, tmp_path, monkeypatch):
    """Clocks that run ten to one: both are told apart, and the state that is resumed keeps both."""
    ticks = {name: itertools.count(step=step) for name, step in (("monotonic", 10), ("process_time", 1))}
    monkeypatch.setattr(loop, "time", SimpleNamespace(**{name: count.__next__ for name, count in ticks.items()}))
    session = Session(small_recipe(epochs=2), make_log(cycles), tmp_path).run()
    assert session.progress.seconds == 10 * session.progress.cpu_seconds > 0
    assert session.load().progress.cpu_seconds == session.progress.cpu_seconds


def test_the_loss_is_the_full_softmax_over_masked_items(make_histories, small_recipe):
    """Gathered rows give what a naive loop over all tokens of the whole logits gives."""
    torch.manual_seed(0)
    network = Bert4Rec(Bert4RecConfig(max_length=6, width=16, layers=1, heads=2, dropout=0.0), 9)
    recipe = small_recipe(mask_probability=0.5).train
    samples = Samples(
        make_histories([[1, 2, 3, 4, 5, 6], [7, 8], [9]]),
        recipe,
        max_length=6,
        item_count=9,
    )
    windows = samples.plan_epoch(0)[0]
    batch = samples.make_batch(windows, 0, 0)
    logits = network.score_items(network.encode(*map(torch.from_numpy, batch.input)))
    original = windows.cut_windows(6).item_ids
    losses = [
        -F.log_softmax(logits[row, column], dim=0)[int(original[row, column]) - 1]
        for row, column in np.argwhere(batch.input.item_ids == 10)
    ]
    assert len(losses) == len(batch.targets)
    loss = measure_loss(network, batch, CPU, recipe)
    assert loss.item() == pytest.approx(torch.stack(losses).sum().item(), rel=1e-5)


@pytest.mark.parametrize("network", ["bert4rec", "sasrec"])
def test_a_network_learns_a_ring_by_heart(make_log, cycles, small_recipe, tmp_path, network):
    """Where the next item is certain, training puts it first, on validation and test; chance would be one in twelve."""
    recipe = small_recipe(
        network=network,
        width=32,
        dropout=0.0,
        epochs=60,
        patience=60,
        keep="last",
        learning_rate=3e-3,
        mask_probability=0.3,
        last_item_share=0.7,
        crop_probability=0.9,
        mask_copies=8,
    )
    session = Session(recipe, make_log(cycles), tmp_path).run()
    load_weights(tmp_path / "kept.safetensors", session.network)
    for questions in (session.split.validation, session.split.test):
        assert average(evaluate(NetworkScorer(session.network), questions))["HR@1"] > 0.9
    assert session.epochs[-1].loss < session.epochs[0].loss * 0.7


@pytest.mark.parametrize(
    "keys",
    [
        {"network": "bert4rec"},
        {"network": "sasrec"},
        {"network": "sasrec", "loss": "sampled_softmax", "negatives": 5},
        {"network": "sasrec", "loss": "bce", "negatives": 1},
    ],
    ids=str,
)
def test_bfloat16_trains_as_float32_does(make_log, cycles, small_recipe, tmp_path, keys):
    """Products in half the bits: weights stay float32, the loss is the same within a percent, and yet not the same."""
    losses = []
    for precision in ("float32", "bfloat16"):
        session = Session(small_recipe(precision=precision, **keys), make_log(cycles), tmp_path).run()
        assert {weight.dtype for weight in session.network.parameters()} == {torch.float32}
        losses.append([epoch.loss for epoch in session.epochs])
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    assert losses[1] != losses[0]


@pytest.mark.parametrize(
    ("wanted", "device", "supported", "chosen"),
    [
        ("auto", "cpu", True, False),
        ("auto", "cuda", True, True),
        ("auto", "cuda", False, False),
        ("float32", "cuda", True, False),
        ("bfloat16", "cpu", False, True),
    ],
)
def test_bfloat16_is_chosen_where_gpus_have_it(monkeypatch, wanted, device, supported, chosen):
    """`auto` asks the GPU and leaves CPUs alone; a recipe that names a precision has it."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: supported)
    assert choose_bfloat16(wanted, torch.device(device)) == chosen


def test_the_same_seed_gives_the_same_bits(make_log, cycles, small_recipe, tmp_path):
    """Two runs of one seed are identical, one of another seed is not."""
    log = make_log(cycles)
    first = Session(small_recipe(seed=5), log, tmp_path).run().state()
    assert _same(first, Session(small_recipe(seed=5), log, tmp_path).run().state())
    assert not _same(first, Session(small_recipe(seed=6), log, tmp_path).run().state())


@pytest.mark.parametrize(
    "case",
    [
        *((stop_after, {}) for stop_after in (1, 2, 3, 4, 7)),
        (4, {"network": "sasrec"}),
        (4, {"network": "sasrec", "loss": "bce", "negatives": 2}),
        (4, {"loss": "gbce", "negatives": 5}),
    ],
)
def test_a_resumed_run_is_the_uninterrupted_one(make_log, cycles, small_recipe, tmp_path, case):
    """Stopped anywhere, inside an epoch or at its end, and resumed: weights, moments, losses, best: same bits."""
    stop_after, keys = case
    log, recipe = make_log(cycles), small_recipe(epochs=4, batch_size=9, **keys)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    straight = Session(recipe, log, whole).run()
    begun = Session(recipe, log, parts).run(stop_after=stop_after)
    assert begun.progress.updates == stop_after
    assert not begun.progress.finished
    torch.manual_seed(999)  # what another process would have
    resumed = Session(recipe, log, parts).load().run()
    assert _same(straight.state(), resumed.state())
    assert [epoch.loss for epoch in straight.epochs] == [epoch.loss for epoch in begun.epochs + resumed.epochs]
    assert [epoch.validation for epoch in straight.epochs][-1] == resumed.epochs[-1].validation
    best = [Session(recipe, log, folder).network for folder in (whole, parts)]
    for network, folder in zip(best, (whole, parts), strict=True):
        load_weights(folder / "kept.safetensors", network)
    assert all(torch.equal(a, b) for a, b in zip(best[0].parameters(), best[1].parameters(), strict=True))


def test_patience_stops_and_the_best_weights_stay(make_log, cycles, small_recipe, tmp_path):
    """No better validation for `patience` epochs ends the run; the kept weights are those of the best epoch."""
    session = Session(small_recipe(epochs=50, patience=3, learning_rate=1e-9), make_log(cycles), tmp_path).run()
    scores = [epoch.validation["NDCG@10"] for epoch in session.epochs]
    assert session.progress.finished == "no better NDCG@10 for 3 epochs"
    assert len(scores) == session.progress.kept_epoch + 3
    assert session.progress.best == max(scores) == scores[session.progress.kept_epoch - 1]
    load_weights(tmp_path / "kept.safetensors", session.network)
    assert average(evaluate(NetworkScorer(session.network), session.split.validation))["NDCG@10"] == max(scores)


def test_the_last_weights_stay_when_asked_for(make_log, cycles, small_recipe, tmp_path):
    """With `keep = "last"` the kept weights are those after the last epoch, whatever validation said."""
    session = Session(small_recipe(epochs=4, keep="last"), make_log(cycles), tmp_path).run()
    assert session.progress.kept_epoch == 4
    trained = {name: weight.clone() for name, weight in session.network.state_dict().items()}
    load_weights(tmp_path / "kept.safetensors", session.network)
    assert all(torch.equal(weight, trained[name]) for name, weight in session.network.state_dict().items())


def test_a_budget_ends_the_run_within_an_epoch(make_log, cycles, small_recipe, tmp_path):
    """When the time is spent, the epoch under way is validated, recorded and the last."""
    session = Session(small_recipe(epochs=10_000, budget_seconds=0.2), make_log(cycles), tmp_path).run()
    assert "budget of 0.2 s" in session.progress.finished
    assert 0.2 <= session.progress.seconds < 30
    assert session.epochs[-1].learning_rate < 3e-3 / 2


@pytest.mark.parametrize(
    ("update", "seconds", "budget", "share"),
    [
        (0, 0.0, None, 1 / 10),
        (8, 0.0, None, 9 / 10 * 0.92),
        (50, 0.0, None, 0.5),
        (99, 0.0, None, 0.01),
        (50, 10.0, 100.0, 0.5),
        (50, 90.0, 100.0, 0.1),
        (50, 101.0, 100.0, 0.0),
    ],
)
def test_the_learning_rate_follows_updates_or_the_clock(update, seconds, budget, share):
    """Linear warm-up, then linear decay to 0 at whichever end comes first."""
    recipe = TrainRecipe(learning_rate=2.0, warmup_steps=9, budget_seconds=budget)
    assert schedule_rate(recipe, update=update, updates=100, seconds=seconds) == pytest.approx(2.0 * share)


def test_gradients_are_cut_to_the_clip_norm(make_log, cycles, small_recipe, tmp_path):
    """Every update sees a gradient whose whole norm is the limit, where the gradients are far above it."""
    session = Session(small_recipe(clip_norm=1e-3), make_log(cycles), tmp_path)
    norms = []

    def note_norm(*_):
        gradients = [weight.grad for weight in session.network.parameters() if weight.grad is not None]
        norms.append(torch.nn.utils.get_total_norm(gradients).item())

    session.optimizer.register_step_pre_hook(note_norm)
    session.run()
    assert norms == pytest.approx([1e-3] * session.progress.updates, rel=1e-2)


def test_the_optimizer_is_adamw_with_the_papers_betas():
    """Two updates of a bias are those of Adam's formulas at .9 and .999."""
    layer = torch.nn.Linear(1, 1)
    optimizer = make_optimizer(layer, TrainRecipe(learning_rate=0.1))
    expected, first, second = layer.bias.item(), 0.0, 0.0
    for step, gradient in enumerate((2.0, -0.5), start=1):
        layer.weight.grad, layer.bias.grad = torch.zeros(1, 1), torch.tensor([gradient])
        optimizer.step()
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        expected -= 0.1 * first / (1 - 0.9**step) / (math.sqrt(second / (1 - 0.999**step)) + 1e-8)
    assert layer.bias.item() == pytest.approx(expected, abs=1e-6)


def test_decay_spares_biases_and_norms():
    """Vectors are never decayed, matrices always, and each parameter is trained once."""
    network = Bert4Rec(Bert4RecConfig(width=16), 5)
    decayed, spared = make_optimizer(network, TrainRecipe(weight_decay=0.03)).param_groups
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    assert decayed["weight_decay"] == 0.03
    assert spared["weight_decay"] == 0.0
    assert all(names[id(parameter)].endswith(("weight", "positions")) for parameter in decayed["params"])
    assert all("norm" in names[id(p)] or "bias" in names[id(p)] for p in spared["params"])
    assert {id(p) for p in decayed["params"] + spared["params"]} == set(names)


def test_a_loss_that_is_no_number_ends_the_run(make_log, cycles, small_recipe, tmp_path):
    """A diverged run says so and keeps no weights."""
    session = Session(small_recipe(), make_log(cycles), tmp_path)
    with torch.no_grad():
        session.network.item_bias[0] = float("nan")
    with pytest.raises(Diverged, match=r"not a number in epoch 1: lower train\.learning_rate"):
        session.run()
    assert not (tmp_path / "kept.safetensors").exists()


@pytest.mark.parametrize("fault", ["cut", "empty", "other sizes", "other file", "missing"])
def test_a_damaged_checkpoint_is_named(make_log, cycles, small_recipe, tmp_path, fault):
    """Anything but a whole checkpoint of this network is refused with its path."""
    log = make_log(cycles)
    session = Session(small_recipe(epochs=1), log, tmp_path).run()
    path = tmp_path / "last.safetensors"
    content = path.read_bytes()
    if fault == "other sizes":
        session = Session(small_recipe(epochs=1), make_log([[1, 2, 3, 4]]), tmp_path)
    elif fault == "other file":
        save_weights(path, session.network)
    elif fault == "missing":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if fault == "cut" else b"")
    with pytest.raises(CheckpointError, match=r"last\.safetensors is not a checkpoint of this run"):
        session.load()


def test_a_checkpoint_holds_nothing_but_tensors_and_json(make_log, cycles, small_recipe, tmp_path):
    """safetensors: a JSON header of tensors and the progress, so reading it cannot run code."""
    Session(small_recipe(epochs=1), make_log(cycles), tmp_path).run()
    content = (tmp_path / "last.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["progress"])["epoch"] == 1
    assert {name.split(".")[0] for name in header} == {"__metadata__", "network", "optimizer"}
    assert list(tmp_path.glob(".*")) == []

"""This project's trainer: its own loop, told to stop by the watcher that also serves Ctrl-C."""

import torch

from benchmarks.training.systems.meter import Entry, run_system
from benchmarks.training.terms import Material, Terms
from model.nets.bert4rec import Bert4Rec
from model.nets.configs import Bert4RecConfig
from training.evaluation.metrics import PRIMARY_METRIC
from training.evaluation.ranking import NetworkScorer
from training.fit.batches import Samples
from training.fit.loop import Watcher, train
from training.fit.optimizer import make_optimizer
from training.recipe import TrainRecipe
from training.runs.progress import Progress

_ENDLESS = 100_000
"""So many epochs that the learning rate stays where the peers' stays for good."""


def run_trainer(terms: Terms, material: Material, entry: Entry) -> None:
    """Train until the meter says enough."""
    recipe = TrainRecipe(
        seed=terms.seed,
        device="cpu",
        precision="float32",
        epochs=_ENDLESS,
        patience=_ENDLESS,
        batch_size=terms.batch_size,
        learning_rate=terms.learning_rate,
        mask_probability=terms.mask_probability,
        last_item_share=0.0,  # neither peer has such samples
    )
    torch.manual_seed(terms.seed)
    network = Bert4Rec(
        Bert4RecConfig(
            max_length=terms.max_length,
            width=terms.width,
            layers=terms.layers,
            heads=terms.heads,
            dropout=terms.dropout,
        ),
        material.item_count,
    )
    samples = Samples(material.train, recipe, max_length=terms.max_length, item_count=material.item_count)
    progress = Progress()
    before = 0  # tokens of this epoch that the meter knows

    def stop() -> bool:
        nonlocal before
        new, before = progress.epoch_tokens - before, progress.epoch_tokens
        return meter.step(new)

    def begin_epoch(*_: object) -> None:
        nonlocal before
        before = 0

    meter = entry.begin(NetworkScorer(network), samples=samples.samples, tokens=int(material.train.lengths.sum()))
    train(
        network,
        make_optimizer(network, recipe),
        samples=samples,
        validate=lambda: {PRIMARY_METRIC: 0.0},  # the meter validates, when it is due
        recipe=recipe,
        progress=progress,
        watcher=Watcher(
            on_step=lambda *_: None, on_epoch=begin_epoch, keep=lambda: None, save=lambda _: None, stop=stop
        ),
    )


if __name__ == "__main__":
    run_system("nextitem", "nextitem", run_trainer)

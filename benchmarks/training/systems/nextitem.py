"""This project's trainer: its own loop, told to stop by the watcher that also serves Ctrl-C."""

import torch

from benchmarks.training.systems.meter import Entry, run_system
from benchmarks.training.terms import Material, Terms
from model.nets import registry
from training.errors import RecipeError
from training.evaluation.ranking import NetworkScorer
from training.fit.batches import Samples
from training.fit.loop import Watcher, train
from training.fit.optimizer import make_optimizer
from training.fit.ppmi import add_item_vectors, factorise_items
from training.recipe import Recipe, make_recipe
from training.recipe_models import NetworkRecipe
from training.runs.progress import Progress

_ENDLESS = 100_000
"""So many epochs that the learning rate stays where the peers' stays for good."""
_SAMPLING = ("dropout", "mask_probability", "last_item_share", "batch_size", "learning_rate")


def choose_recipe(terms: Terms) -> Recipe:
    """The recipe of the terms, or one that trains on the very terms of the peers at a rate that does not decay."""
    if terms.recipe is not None:
        return make_recipe(terms.recipe, announce=False)
    given = {key: value for key in _SAMPLING if (value := getattr(terms, key)) is not None}
    model = {key: getattr(terms, key) for key in ("max_length", "width", "layers", "heads")}
    if "dropout" in given:
        model["dropout"] = given.pop("dropout")
    return make_recipe(
        {
            "model": {"name": terms.network, **model},
            "train": {"seed": terms.seed, "device": "cpu", "precision": "float32", "epochs": _ENDLESS, **given},
        }
    )


def run_trainer(terms: Terms, material: Material, entry: Entry) -> None:
    """Train until the meter says enough, or the recipe does. Raises RecipeError for what is no network alone."""
    whole = choose_recipe(terms)
    recipe = whole.train
    if not isinstance(whole.model, NetworkRecipe) or whole.rules_per_item is not None:
        raise RecipeError(f"{whole.name} counts a log: a network alone learns step by step")
    torch.manual_seed(recipe.seed)
    network = registry.make_network(
        whole.model.name, item_count=material.item_count, user_count=len(material.train), **whole.model.sizes
    )
    if recipe.item_init == "ppmi":
        width = whole.model.width
        add_item_vectors(network, factorise_items(material.train, material.item_count, width, recipe.seed))
    samples = Samples(
        material.train,
        recipe,
        max_length=whole.model.max_length,
        item_count=material.item_count,
        causal=network.causal,
    )
    tokens = sum(int(batch.lengths.sum()) for batch in samples.plan_epoch(0))
    progress = Progress()
    before = 0  # tokens of this epoch that the meter knows

    def stop() -> bool:
        nonlocal before
        new, before = progress.epoch_tokens - before, progress.epoch_tokens
        enough = meter.step(new)
        progress.seconds = meter.count.cpu_seconds  # what a recipe's budget is here: others use the machine, too
        return enough

    def begin_epoch(*_: object) -> None:
        nonlocal before
        before = 0

    meter = entry.begin(NetworkScorer(network, material.train), samples=samples.samples, tokens=tokens)
    train(
        network,
        make_optimizer(network, recipe),
        samples=samples,
        validate=None,  # the meter measures, when it is due
        recipe=recipe,
        progress=progress,
        watcher=Watcher(
            on_step=lambda *_: None, on_epoch=begin_epoch, keep=lambda: None, save=lambda _: None, stop=stop
        ),
    )


if __name__ == "__main__":
    run_system("nextitem", "nextitem", run_trainer)

"""The network of a run: made by its recipe, and loaded with the weights and rules that the run kept."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from model.contract.vocabulary import Vocabulary
from model.nets import registry
from model.nets.features import SideInformation
from model.nets.network import Network, SequenceNetwork
from model.nets.nova import Nova
from model.nets.rules import SequentialRules
from training.baselines.rules import find_fault, make_rules
from training.data.item_features import Metadata, encode_items
from training.environment import choose_device
from training.errors import RunError
from training.recipe_models import NetworkRecipe
from training.runs.checkpoint import load_weights
from training.runs.popularity_discount import discount_popularity
from training.runs.recency import Recency
from training.runs.run import Run


def make_network(run: Run, vocabulary: Vocabulary | None = None, metadata: Metadata | None = None) -> Network:
    """The untrained network of a run, drawn from torch's generator.

    `vocabulary` and `metadata` are of other items than the run's. Raises RunError where the run's model has no network.
    """
    recipe, vocabulary = run.recipe.model, vocabulary or run.vocabulary
    if not isinstance(recipe, NetworkRecipe):
        raise RunError(f"{run.path} has no network: {recipe.name} counts a log")
    return registry.make_network(
        recipe.name,
        item_count=len(vocabulary),
        user_count=run.config["data"]["users"],
        side=_read_side(run, vocabulary, run.read_metadata() or {} if metadata is None else metadata),
        **recipe.sizes,
    )


def load_network(run: Run, *, alone: bool = False, recent: NDArray[np.int64] | None = None) -> Network:
    """The weights kept so far, popularity discounted, with the recipe's rules and recency unless `alone`.

    `recent` (V) is how often each item occurred of late in place of what is served, which knows the whole log. Raises
    RunError when there are no weights, or none yet.
    """
    recipe = run.recipe
    if isinstance(recipe.model, NetworkRecipe) and not run.kept.is_file():
        raise RunError(f"{run.path} has no weights yet: no epoch is complete")
    network = make_network(run)
    load_weights(run.kept, network)
    if isinstance(network, Nova):
        network.settle()
    if recipe.popularity_discount:
        discount_popularity(network, run.read_trained_counts(), recipe.popularity_discount)
    if isinstance(network, SequenceNetwork) and recipe.recent_days is not None and not alone:
        network.item_bias.data += _load_recency(run, recent)().to(network.item_bias)
    if isinstance(network, SequenceNetwork) and recipe.rules_per_item is not None and not alone:
        rules = _load_rules(run, recipe.rules_per_item)
        network.rules = rules if rules.strength else None
    return network.to(choose_device(recipe.train.device)).eval()


def _load_recency(run: Run, recent: NDArray[np.int64] | None) -> Recency:
    _require_counted(run, run.recency, "no recency yet: it is")
    recency = Recency(np.zeros(len(run.vocabulary), dtype=np.int64))
    load_weights(run.recency, recency)
    if recent is not None:
        recency.counts = torch.from_numpy(recent)
    if not bool(torch.isfinite(recency.weight) & (recency.weight >= 0) & (recency.counts >= 0).all()):
        raise RunError(f"{run.recency} is not what a run writes: a weight or count is not a number of at least 0")
    return recency


def _require_counted(run: Run, path: Path, what: str) -> None:
    if not path.is_file():
        raise RunError(
            f"{run.path} has {what} counted when training ends, continue it with `nextitem-train fit ... --resume`"
        )


def _load_rules(run: Run, most: int) -> SequentialRules:
    _require_counted(run, run.rules, "no rules yet: they are")
    rules = make_rules(len(run.vocabulary), most)
    load_weights(run.rules, rules)
    fault = find_fault(rules)
    if fault is not None:
        raise RunError(f"{run.rules} is not what a run writes: {fault}")
    return rules


def _read_side(run: Run, vocabulary: Vocabulary, metadata: Metadata) -> SideInformation:
    columns, events = run.read_columns(), run.event_features
    with run.reading("metadata.json"):
        tables = encode_items(columns, metadata, vocabulary)
    return SideInformation(
        items=[(torch.from_numpy(table), column.size) for table, column in zip(tables, columns, strict=True)],
        events={} if events is None else events.edges,
        type_count=0 if events is None else len(events.event_types),
    )

"""Behaviour side information: what is known of a log's events beside their items, as the inputs of a network.

Event types are coded in alphabetical order. Values and the gaps between a user's events are cut by the network itself,
at edges that are learned from the training events (training/features.py has how).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.behaviour import ABSENT
from training.errors import RecipeError
from training.features import find_edges
from training.histories import Histories
from training.log import Log
from training.model_recipe import NovaRecipe
from training.recipe import BEHAVIOURS, Recipe


@dataclass(frozen=True)
class Behaviour:
    """The content of behaviour.json."""

    edges: Mapping[str, Sequence[float]]
    """By input, in the network's order; `types` has none."""
    event_types: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Behaviour":
        """What `to_json` gave. Raises KeyError, TypeError or ValueError."""
        edges = {name: tuple(map(float, bounds)) for name, bounds in document["edges"].items()}
        if not edges.keys() <= ABSENT.keys():
            raise ValueError("an input that no network reads")
        return cls(edges, tuple(map(str, document["event_types"])))

    def encode(self, log: Log) -> list[NDArray[Any]]:
        """Each input for all events of a log, flat as `log.items`. A type that training did not meet is as none."""
        told: dict[str, NDArray[Any]] = {}
        if log.types is not None:
            found, places = np.unique(log.types, return_inverse=True)
            code_of = {name: code for code, name in enumerate(self.event_types, start=1)}
            told["types"] = np.array([code_of.get(str(name), 0) for name in found], dtype=np.int32)[places]
        if log.values is not None:
            told["values"] = log.values
        if log.timestamps_ms is not None:
            told["times"] = log.timestamps_ms
        return [told[name] for name in self.edges]


def learn_behaviour(recipe: Recipe, log: Log, train: Histories) -> Behaviour | None:
    """What a recipe's network is told of events, or None for nothing. Raises RecipeError where nothing reads it."""
    model = recipe.model
    if not recipe.data.behaviour:
        return None
    if not isinstance(model, NovaRecipe):
        raise RecipeError(f"data.behaviour must be empty for {model.network}, which knows items alone")
    owners, places = train.find_places()
    edges: dict[str, tuple[float, ...]] = {}
    event_types: tuple[str, ...] = ()
    for name in (BEHAVIOURS[kind] for kind in recipe.data.behaviour):
        edges[name] = ()
        if name == "types" and log.types is not None:
            event_types = tuple(map(str, np.unique(log.types[places])))
        elif name == "values" and log.values is not None:
            values = log.values[places]
            edges[name] = find_edges(values[~np.isnan(values)].astype(np.float64), model.buckets)
        elif log.timestamps_ms is not None:
            times = log.timestamps_ms[places]
            edges[name] = find_edges(np.diff(times)[owners[1:] == owners[:-1]].astype(np.float64), model.buckets)
    return Behaviour(edges, event_types)

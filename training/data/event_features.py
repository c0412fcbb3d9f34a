"""Event features: the types, values and gaps of a log's events, as the inputs of a network.

Event types are coded in alphabetical order. Values and the gaps between a user's events are cut by the network itself,
at edges that are learned from the training events (training/data/item_features.py has how).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.event_inputs import ABSENT, TIMES
from training.data.histories import Histories
from training.data.interactions import Log
from training.data.item_features import find_edges
from training.errors import DataError, RecipeError
from training.recipe import EVENT_FEATURES, Recipe
from training.recipe_models import ModelRecipe, NovaRecipe, TransformerRecipe


@dataclass(frozen=True)
class EventFeatures:
    """The content of behaviour.json."""

    edges: Mapping[str, Sequence[float]]
    """The edges of buckets by input, in the network's order; `types` has none."""
    event_types: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "EventFeatures":
        """Read what `to_json` gave. Raises KeyError, TypeError or ValueError."""
        edges = {name: tuple(map(float, bounds)) for name, bounds in document["edges"].items()}
        if not edges.keys() <= ABSENT.keys():
            raise ValueError("an input that no network reads")
        return cls(edges, tuple(map(str, document["event_types"])))

    def encode(self, log: Log) -> list[NDArray[Any]]:
        """Each input for all events of a log, flat as `log.items`. A type that training did not meet counts as none."""
        features: dict[str, NDArray[Any]] = {}
        if log.types is not None:
            found, positions = np.unique(log.types, return_inverse=True)
            code_of = {name: code for code, name in enumerate(self.event_types, start=1)}
            features["types"] = np.array([code_of.get(str(name), 0) for name in found], dtype=np.int32)[positions]
        if log.values is not None:
            features["values"] = log.values
        if log.timestamps_ms is not None:
            features["times"] = log.timestamps_ms
        return [features[name] for name in self.edges]


def encode_inputs(model: ModelRecipe, known: EventFeatures | None, log: Log) -> list[NDArray[Any]]:
    """Each input of events that a model reads, in its order, flat as the log's items."""
    encoded = [] if known is None else known.encode(log)
    if not reads_times(model) or (known is not None and TIMES in known.edges):
        return encoded
    return [*encoded, np.zeros(len(log.items), dtype=np.int64) if log.timestamps_ms is None else log.timestamps_ms]


def reads_times(model: ModelRecipe) -> bool:
    """Whether a model's attention knows the time between events."""
    return isinstance(model, TransformerRecipe) and model.relative_time


def learn_event_features(recipe: Recipe, log: Log, train: Histories) -> EventFeatures | None:
    """Learn the event features of a recipe, None if it has none. Raises RecipeError if the model reads none.

    Raises DataError where the recipe wants times that the log does not have.
    """
    model = recipe.model
    for key, wanted in (("relative_time", reads_times(model)), ("recent_days", recipe.recent_days is not None)):
        if wanted and log.timestamps_ms is None:
            raise DataError(f"model.{key} needs a log with times: name the column by data.timestamp_column")
    if not recipe.data.event_features:
        return None
    if not isinstance(model, NovaRecipe):
        raise RecipeError(f"data.event_features must be empty for {model.name}, which reads items only")
    owners, positions = train.find_positions()
    edges: dict[str, tuple[float, ...]] = {}
    event_types: tuple[str, ...] = ()
    for name in (EVENT_FEATURES[kind] for kind in recipe.data.event_features):
        edges[name] = ()
        if name == "types" and log.types is not None:
            event_types = tuple(map(str, np.unique(log.types[positions])))
        elif name == "values" and log.values is not None:
            values = log.values[positions]
            edges[name] = find_edges(values[~np.isnan(values)].astype(np.float64), model.buckets)
        elif log.timestamps_ms is not None:
            times = log.timestamps_ms[positions]
            edges[name] = find_edges(np.diff(times)[owners[1:] == owners[:-1]].astype(np.float64), model.buckets)
    return EventFeatures(edges, event_types)

"""The required content of the JSON documents of a run."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from training.evaluation.metrics import PRIMARY_METRIC
from training.evaluation.results import OVER_POPULARITY, SHOWN
from training.recipe import Recipe

METRIC = {"value": float, "low": float, "high": float}
"""A mean with its interval."""
CONFIG = {"recipe": {}, "data": {"fingerprint": str, "users": int, "last_event_at": str | None}}
RESULTS = {
    "protocol": str,
    "users": int,
    "models": {},
    "epochs": int,
    "kept_epoch": int,
    "stopped_because": str,
    "finished_at": str,
}
COMPARISON = {"comparison": {"winner": str, "second": str, "metric": str, "lead": METRIC}}
APART = {
    "seen_items": str,
    "repeated_targets": str,
    "targets": {"share": float, "new": {"users": int}, "repeated": {"users": int}},
}
"""Of results since evaluation 2 (training/evaluation/results.py)."""
WITH_RULES = {"rules": {"strength": float, PRIMARY_METRIC: {"0": float}}}
WITH_RECENCY = {"recency": {"weight": float, PRIMARY_METRIC: {"0": float}}}
EPOCH = {"epoch": int, "loss": float, "seconds": float, "validation": dict.fromkeys(SHOWN, float)}


def shape_results(recipe: Recipe) -> dict[str, Any]:
    """What results.json must hold of a run by this recipe."""
    rules = {} if recipe.rules_per_item is None else WITH_RULES
    return {**RESULTS, **rules, **({} if recipe.recent_days is None else WITH_RECENCY)}


def parse(text: str | bytes, shape: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - a document
    """Read JSON of a shape: keys it must have, each with a type or a shape.

    Raises ValueError or TypeError, naming the key.
    """
    document = json.loads(text, parse_constant=_refuse)
    if shape is not None:
        _require(document, shape, "the document")
    return document


def require_metrics(results: Mapping[str, Any], name: str) -> None:
    """Refuse results in which this model, or another one, has no metrics with their intervals. Raises as `parse` does.

    Of several models they say which is the best.
    """
    models = results["models"]
    _require(models, {name: dict.fromkeys(SHOWN, METRIC)}, "models")
    for model in models.values():
        _require(model, dict.fromkeys(model, METRIC), "a model")
    if len(models) > 1:
        _require(results, COMPARISON, "the document")
    if "targets" in results:
        _require(results, APART, "the document")
    if OVER_POPULARITY in results:
        _require(results, {OVER_POPULARITY: METRIC}, "the document")
    if "leads" in results:
        _require(results, {"leads": dict.fromkeys(models.keys() - {name}, METRIC)}, "the document")


def _require(document: object, shape: Any, name: str) -> None:  # noqa: ANN401 - a type or a shape
    if isinstance(shape, Mapping):
        if not isinstance(document, dict):
            raise TypeError(f"{name} holds no keys")
        for key, inner in shape.items():
            if key not in document:
                raise ValueError(f"{name} lacks {key}")
            _require(document[key], inner, key)
    elif isinstance(document, bool) or not isinstance(document, int | float if shape is float else shape):
        raise TypeError(f"{name} has a value of the wrong type")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")

"""How lists spread over a catalogue, beside how the events of the log do: coverage, Gini index, long tail."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_POINTS = 60
"""Of a curve: more than a picture shows."""


def describe_spread(trained: NDArray[np.int64], lists: Mapping[str, NDArray[np.int32]]) -> dict[str, Any]:
    """The spread of the training events (counts by item, V) and of each model's lists ((B, K) indexes, 0 for none).

    `items` are the ranks, 1 to V, at which every curve is told; a curve's value is the share that its own so many most
    frequent items have of all.
    """
    V = len(trained)
    ranks = np.unique(np.geomspace(1, V, _POINTS).round().astype(np.int64))
    tenth = np.argsort(-trained, kind="stable")[: max(1, V // 10)]
    recommended = {
        name: np.bincount(found[found > 0], minlength=V + 1)[1:].astype(np.int64) for name, found in lists.items()
    }
    return {
        "catalogue": V,
        "items": ranks.tolist(),
        "users": max((len(found) for found in lists.values()), default=0),
        "log": _describe_counts(trained, ranks, tenth),
        "models": {name: _describe_counts(counts, ranks, tenth) for name, counts in recommended.items()},
    }


def _describe_counts(counts: NDArray[np.int64], ranks: NDArray[np.int64], tenth: NDArray[np.int64]) -> dict[str, Any]:
    """`tenth` are the items that the training events are fullest of."""
    total = max(1, int(counts.sum()))
    falling = np.cumsum(np.sort(counts)[::-1]) / total
    return {
        "share": float((counts > 0).mean()),
        "gini": measure_gini(counts),
        "top_tenth": float(counts[tenth].sum() / total),
        "curve": [round(float(value), 6) for value in falling[ranks - 1]],
    }


def measure_gini(counts: NDArray[np.int64]) -> float:
    """The Gini index of how often each item occurs (V): 0 where all occur alike, 1 - 1 / V where one has everything.

    Shani & Gunawardana 2011 (Evaluating Recommendation Systems, section 8.3.3) use it for sales diversity.
    """
    V, total = len(counts), int(counts.sum())
    if not total:
        return 0.0
    ranks = np.arange(1, V + 1)
    return float(((2 * ranks - V - 1) * np.sort(counts)).sum() / (V * total))

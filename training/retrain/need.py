"""Whether a retraining is needed: too many of the newest events are of items that the champion does not know."""

from pathlib import Path

import numpy as np

from model.contract.vocabulary import UNKNOWN
from training.data.interactions import Log
from training.retrain.champion import Champion

MOST_UNKNOWN = 0.05
"""Share of the newest day's events whose item the champion does not know."""
_DAY_MS = 86_400_000


def find_need(root: Path, champion: Champion, log: Log) -> str | None:  # noqa: ARG001
    """Why the champion should be retrained, or None."""
    unknown = measure_unknown(champion, log)
    if unknown > MOST_UNKNOWN:
        return f"{unknown:.1%} of the newest day's events are of items that the champion does not know"
    return None


def measure_unknown(champion: Champion, log: Log) -> float:
    """The share of the newest day's events whose item the champion does not know."""
    assert log.timestamps_ms is not None  # noqa: S101 - without times nothing is new, and nobody asks
    newest = log.timestamps_ms > log.timestamps_ms.max() - _DAY_MS
    known = np.append(UNKNOWN, champion.bundle.vocabulary.encode(log.vocabulary.item_ids)) != UNKNOWN
    return float(1 - known[log.items[newest]].mean())

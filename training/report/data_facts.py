"""What a report says of a log: its statistics, and how the lengths and times of its events are spread."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.describe import describe_log
from training.data.interactions import Log
from training.data.split import Split

_MOST_SINGLE = 16
"""Up to this longest history each length has a bar of its own; beyond it a bar covers twice what the last one did."""
_TIME_BARS = 40


def describe_data(log: Log, split: Split) -> dict[str, Any]:
    """Statistics as `describe` has them, bars of lengths and times, and how many events train, validate and test."""
    found = describe_log(log)
    return {
        **found,
        "warnings": list(log.warnings),
        "lengths": count_lengths(log.histories.lengths),
        "times": count_times(log.timestamps_ms),
        "training_events": int(split.train.lengths.sum()),
        "validation_users": len(split.validation),
        "test_users": len(split.test),
    }


def count_lengths(lengths: NDArray[np.int64]) -> dict[str, list[Any]]:
    """Users by the length of their history: a label and a count for each bar, from the shortest history on."""
    longest = int(lengths.max())
    if longest <= _MOST_SINGLE:
        edges = list(range(1, longest + 2))
    else:
        edges = [2**power for power in range(longest.bit_length() + 1)]
    counts, _ = np.histogram(lengths, bins=edges)
    first = int(np.flatnonzero(counts)[0])
    labels = [str(low) if high - low == 1 else f"{low:,}-{high - 1:,}" for low, high in pairwise(edges)]
    return {"labels": labels[first:], "users": counts[first:].tolist()}


def count_times(times_ms: NDArray[np.int64] | None) -> dict[str, Any] | None:
    """Events by time, in bars of equal duration; None where there are no times, or one alone."""
    if times_ms is None or times_ms.min() == times_ms.max():
        return None
    counts, _ = np.histogram(times_ms, bins=_TIME_BARS)
    return {"from_ms": int(times_ms.min()), "until_ms": int(times_ms.max()), "events": counts.tolist()}

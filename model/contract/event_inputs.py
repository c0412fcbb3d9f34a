"""Event features of a history: optional inputs of the graph, which a manifest names.

  types   (B, T) int32    the event's type, coded by the bundle's event_types.txt: line i is code i
  values  (B, T) float32  its value
  times   (B, T) int64    its time in epoch milliseconds
All are aligned with `item_ids`. ABSENT stands for what is not known, and at padding: a network must answer without any
of it, and hides by itself what stands beside a hidden item. At [mask] `types` and `values` are ABSENT, and `times` has
the time at which the question is asked, where that is known.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

TIMES = "times"
ABSENT: dict[str, np.generic] = {"types": np.int32(0), "values": np.float32(np.nan), TIMES: np.int64(0)}
"""Every optional input by name: what says that nothing is known, and by its own type the input's."""


class Events(NamedTuple):
    """What came with each of n items of a history, oldest first."""

    types: Sequence[str]
    values: Sequence[float | None]
    times_ms: Sequence[int]


def encode_events(events: Events, event_types: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Every optional input (n) for one history. A type that is not among `event_types` is as none."""
    code_of = {name: code for code, name in enumerate(event_types, start=1)}
    return {
        "types": np.array([code_of.get(name, 0) for name in events.types], dtype=np.int32),
        "values": np.array([np.nan if value is None else value for value in events.values], dtype=np.float32),
        TIMES: np.array(events.times_ms, dtype=np.int64),
    }


def stack_events(
    name: str, rows: Sequence[NDArray[Any] | None], lengths: NDArray[np.int32], T: int, *, asked_ms: Sequence[int] = ()
) -> NDArray[Any]:
    """One optional input (B, T) beside histories of `lengths`, their [mask] counted; a row of None has no features.

    `asked_ms` (B) are the times of the questions, which stand at [mask] in `times`.
    """
    stacked = np.full((len(rows), T), ABSENT[name])
    if name == TIMES and asked_ms:
        stacked[:, -1] = asked_ms
    for row, length, features in zip(stacked, lengths.tolist(), rows, strict=True):
        if features is not None and length > 1:
            row[T - length : T - 1] = features[1 - length :]
    return stacked

"""The plain export behind a function, as a good engineer would write it in an afternoon: all scores out, numpy sorts.

Read in the peers' environments, too: numpy and onnxruntime are all that may be needed here.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from benchmarks.serving.systems.orders import MODEL_VARIABLE

SCORES = "scores.onnx"
ITEMS = "items.txt"

Ranking = list[tuple[str, float]]
"""Items and their scores, best first."""


class PlainModel:
    """A graph of `item_ids` (B, T) and `lengths` (B) -> `scores` (B, V + 2), and the items' ids."""

    def __init__(self, folder: Path) -> None:
        """Read `SCORES` and `ITEMS`, whose first line is N and whose others are V ids."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # requests run beside each other already
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            (folder / SCORES).read_bytes(), options, providers=["CPUExecutionProvider"]
        )
        length, *ids = (folder / ITEMS).read_text(encoding="ascii").split()
        self._max_length = int(length)
        self._ids = ids
        self._indexes = {item_id: index for index, item_id in enumerate(ids, start=1)}

    @classmethod
    def from_environment(cls) -> "PlainModel":
        """The one that MODEL_VARIABLE names."""
        return cls(Path(os.environ[MODEL_VARIABLE]))

    def rank(self, histories: Sequence[Sequence[str]], k: int) -> list[Ranking]:
        """The best k items of each history and their scores, best first; none that was seen."""
        scores, _ = self.score(histories)
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        found = np.take_along_axis(scores, best, axis=1)
        order = np.argsort(-found, axis=1, kind="stable")
        ranked = np.take_along_axis(best, order, axis=1).tolist()
        heights = np.take_along_axis(found, order, axis=1).tolist()
        return [
            [(self._ids[index - 1], score) for index, score in zip(*row, strict=True)]
            for row in zip(ranked, heights, strict=True)
        ]

    def score(self, histories: Sequence[Sequence[str]]) -> tuple[NDArray[np.float32], dict[str, int]]:
        """(B, V + 2) scores, -inf for what was seen, and the index of each item."""
        get = self._indexes.get
        seen = [[index for item in history if (index := get(item))] for history in histories]
        rows = [[*row[-(self._max_length - 1) :], len(self._ids) + 1] for row in seen]
        lengths = np.array([len(row) for row in rows], dtype=np.int32)
        item_ids = np.zeros((len(rows), lengths.max()), dtype=np.int32)
        for place, row in zip(item_ids, rows, strict=True):
            place[-len(row) :] = row
        (scores,) = self._session.run(["scores"], {"item_ids": item_ids, "lengths": lengths})
        for place, row in zip(scores, seen, strict=True):
            place[row] = -np.inf
        return scores, self._indexes

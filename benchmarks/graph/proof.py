"""Does every step answer as PyTorch does? Asked about many random histories before anything is timed."""

from collections.abc import Mapping

import numpy as np
import torch

from benchmarks.graph.steps import Run
from benchmarks.harness.cases import Case, K, draw_feed, draw_lengths
from model.nets.network import SequenceNetwork

TOLERANCE = 1e-4
_ROWS = 20


class StepsDiffer(Exception):
    """A step answers otherwise than PyTorch."""


def prove(network: SequenceNetwork, case: Case, steps: Mapping[str, Run], *, histories: int) -> float:
    """How far a score of any step lies from PyTorch's, at most. Raises StepsDiffer for other items or beyond TOLERANCE.

    Items may change places only where PyTorch's scores of them lie within TOLERANCE.
    """
    farthest = 0.0
    for seed in range(-(-histories // _ROWS)):
        feed = draw_feed(case, _ROWS, lengths=draw_lengths(case, _ROWS, seed=seed), seed=seed)
        with torch.inference_mode():
            scores = network(torch.from_numpy(feed["item_ids"]), torch.from_numpy(feed["lengths"])).numpy()
        excluded = feed["exclude"].astype(np.int64) - 1
        rows = np.nonzero(excluded >= 0)[0]
        scores[rows, excluded[excluded >= 0]] = -np.inf
        best = -np.sort(-np.partition(scores, -K, axis=1)[:, -K:], axis=1)
        for name, run in steps.items():
            indexes, found = run(feed)
            apart = max(
                float(np.abs(found - best).max()),
                float(np.abs(np.take_along_axis(scores, indexes - 1, axis=1) - best).max()),
            )
            if not apart <= TOLERANCE:
                raise StepsDiffer(f"{name!r} and PyTorch differ by {apart:.1e}")
            farthest = max(farthest, apart)
    return farthest

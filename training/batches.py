"""Samples of the Cloze task, cut and masked anew in every epoch, whole batches at a time.

Every draw comes from a generator seeded by (seed, epoch, step), so that a resumed run needs no other state than these
three numbers to see the very batches that it would have seen.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.contract.sequence import Input
from training.histories import Histories
from training.recipe import TrainRecipe

_POOL = 32
"""Batches whose samples are sorted by length together: little padding, and still another mixture in every epoch."""


@dataclass(frozen=True)
class Batch:
    """Masked windows (B, T), and for the M masked tokens their places in the flattened windows and score columns."""

    input: Input
    places: NDArray[np.int64]
    targets: NDArray[np.int64]


class Cloze:
    """The training samples: every window of every history, some of them cut at a random end instead."""

    def __init__(self, train: Histories, recipe: TrainRecipe, *, max_length: int, item_count: int) -> None:
        self._recipe = recipe
        self._max_length = max_length
        self._mask_index = item_count + 1
        self._windows, self._users = cut_windows(train, max_length, recipe.window_step or max_length)
        self._train = train

    @property
    def samples(self) -> int:
        """Samples in an epoch."""
        return len(self._windows) * self._recipe.copies

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return -(-self.samples // self._recipe.batch_size)

    def plan_epoch(self, epoch: int) -> list[Histories]:
        """The epoch's batches in order: windows of like length together, the batches shuffled."""
        draw = np.random.default_rng([self._recipe.seed, epoch, 0])
        order = np.tile(np.arange(len(self._windows)), self._recipe.copies)
        windows, users = self._windows.select(order), self._users[order]
        cropped = draw.random(len(order)) < self._recipe.crop_share
        starts, whole = self._train.starts[users], self._train.ends[users]
        crops = starts + draw.integers(1, whole - starts + 1)
        ends = np.where(cropped, crops, windows.ends)
        starts = np.where(cropped, np.maximum(starts, crops - self._max_length), windows.starts)
        shuffled = draw.permutation(len(order))
        pool = self._recipe.batch_size * _POOL
        by_length = [
            rows[np.argsort((ends - starts)[rows], kind="stable")]
            for rows in (shuffled[begin : begin + pool] for begin in range(0, len(shuffled), pool))
        ]
        sorted_rows = np.concatenate(by_length)
        size = self._recipe.batch_size
        batches = [sorted_rows[begin : begin + size] for begin in range(0, len(sorted_rows), size)]
        return [Histories(windows.items, starts[batches[i]], ends[batches[i]]) for i in draw.permutation(len(batches))]

    def mask_batch(self, windows: Histories, epoch: int, step: int) -> Batch:
        """Mask one batch of the plan."""
        draw = np.random.default_rng([self._recipe.seed, epoch, step + 1])  # 0 is the plan's
        item_ids, lengths = windows.cut_windows(self._max_length)
        masked = draw_masks(
            lengths,
            item_ids.shape[1],
            probability=self._recipe.mask_probability,
            last_item_share=self._recipe.last_item_share,
            draw=draw,
        )
        places = np.flatnonzero(masked)
        targets = item_ids.reshape(-1)[places].astype(np.int64) - 1
        return Batch(Input(np.where(masked, np.int32(self._mask_index), item_ids), lengths), places, targets)


def cut_windows(histories: Histories, max_length: int, step: int) -> tuple[Histories, NDArray[np.int64]]:
    """Windows of at most `max_length` items, every `step` items back from the newest, until the oldest is in one.

    Returns the windows and the row of the history that each was cut from. Empty histories give none.
    """
    lengths = histories.lengths
    counts = np.where(lengths > 0, 1 + np.maximum(0, -((max_length - lengths) // step)), 0)
    users = np.repeat(np.arange(len(histories)), counts)
    back = np.arange(len(users)) - (np.cumsum(counts) - counts)[users]
    ends = histories.ends[users] - back * step
    starts = np.maximum(histories.starts[users], ends - max_length)
    ends = np.maximum(ends, starts + np.minimum(max_length, lengths[users]))  # the oldest window is a full one, too
    return Histories(histories.items, starts, ends), users


def draw_masks(
    lengths: NDArray[np.int32], T: int, *, probability: float, last_item_share: float, draw: np.random.Generator
) -> NDArray[np.bool_]:
    """Which tokens (B, T) of right-aligned rows to mask: a share of each row, at least one, or only the last.

    A row of n tokens has max(1, round(n * probability)) masks at places drawn anew, as in the authors' code; a sample
    that masks the last item alone has the shape of the question asked when serving.
    """
    B = len(lengths)
    real = np.arange(T) >= T - lengths[:, None]
    keys = np.where(real, draw.random((B, T)), 2.0)
    wanted = np.maximum(1, np.rint(lengths * probability)).astype(np.int64)
    threshold = np.take_along_axis(np.sort(keys, axis=1), wanted[:, None] - 1, axis=1)
    masked: NDArray[np.bool_] = keys <= threshold
    last_only = draw.random(B) < last_item_share
    masked[last_only] = False
    masked[last_only, -1] = True
    return masked

"""Training samples, cut and masked again in every epoch, whole batches at a time.

Every draw comes from a generator seeded by (seed, epoch, step), so that a resumed run needs no other state than these
three numbers to see the very batches that it would have seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.sequence import Input
from training.data.histories import Histories
from training.fit.masks import draw_masks
from training.fit.negatives import UnseenItems, draw_items
from training.recipe import OWN_NEGATIVES, UNSEEN_NEGATIVES, TrainRecipe

_POOL = 32
"""Batches whose samples are sorted by length together: little padding, and another mixture in every epoch."""


@dataclass(frozen=True)
class Batch:
    """Windows (B, T), and for M trained positions their indexes in the flattened windows and their score columns.

    `users` (B) are rows of the training histories. `negatives` are score columns, too: shared (K), each target's own
    (M, K), or none for the full softmax. `events` (B, T) are the event features of the windows.
    """

    input: Input
    users: NDArray[np.int64]
    positions: NDArray[np.int64]
    targets: NDArray[np.int64]
    negatives: NDArray[np.int64] | None
    events: tuple[NDArray[Any], ...] = ()

    def share(self, rank: int, world: int) -> "Batch":
        """Every `world`-th window from `rank` on, with its positions."""
        T = self.input.item_ids.shape[1]
        mine = np.flatnonzero(self.positions // T % world == rank)
        positions = self.positions[mine]
        negatives = self.negatives
        if negatives is not None and negatives.ndim == 2:
            negatives = negatives[mine]
        return Batch(
            Input(self.input.item_ids[rank::world], self.input.lengths[rank::world]),
            self.users[rank::world],
            positions // T // world * T + positions % T,
            self.targets[mine],
            negatives,
            tuple(features[rank::world] for features in self.events),
        )


class Samples:
    """Every window of every history, some of them cut at a random end instead.

    A causal network trains every position of a window, any other network the masked ones of the Cloze task. `events`
    are flat as the items, one array for each input that the network reads.
    """

    def __init__(
        self,
        train: Histories,
        recipe: TrainRecipe,
        *,
        max_length: int,
        item_count: int,
        causal: bool = False,
        events: Sequence[NDArray[Any]] = (),
    ) -> None:
        self._recipe = recipe
        self._max_length = max_length
        self._item_count = item_count
        self._causal = causal
        self._events = events
        self._windows, self._users = cut_windows(train, max_length, recipe.window_stride or max_length)
        self._train = train
        self._unseen = UnseenItems(train, item_count) if recipe.loss in UNSEEN_NEGATIVES else None

    @property
    def samples(self) -> int:
        """Samples in an epoch."""
        return len(self._windows) * self._recipe.mask_copies

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return -(-self.samples // self._recipe.batch_size)

    def plan_epoch(self, epoch: int) -> list[Histories]:
        """The epoch's batches in order: windows of like length together, the batches shuffled."""
        draw = np.random.default_rng([self._recipe.seed, epoch, 0])
        order = np.tile(np.arange(len(self._windows)), self._recipe.mask_copies)
        windows, users = self._windows.select(order), self._users[order]
        cropped = draw.random(len(order)) < self._recipe.crop_probability
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

    def make_batch(self, windows: Histories, epoch: int, step: int) -> Batch:
        """Draw masks and negatives for one batch of the plan."""
        draw = np.random.default_rng([self._recipe.seed, epoch, step + 1])  # 0 is the plan's
        item_ids, lengths = windows.cut_windows(self._max_length)
        T = item_ids.shape[1]
        if self._causal:
            shown, trained = item_ids, np.arange(T) >= T - lengths[:, None]
        else:
            trained = draw_masks(lengths, T, self._recipe, draw)
            shown = np.where(trained, np.int32(self._item_count + 1), item_ids)
        positions = np.flatnonzero(trained)
        targets = item_ids.reshape(-1)[positions].astype(np.int64) - 1
        users = self._train.find_owners(windows)
        negatives = self._draw_negatives(users[positions // T], draw)
        # The network hides the features of a hidden item, as it does when serving.
        events = tuple(windows.cut_side_input(features, self._max_length) for features in self._events)
        return Batch(Input(shown, lengths), users, positions, targets, negatives, events)

    def _draw_negatives(self, users: NDArray[np.int64], draw: np.random.Generator) -> NDArray[np.int64] | None:
        count = self._recipe.negatives
        if self._recipe.loss == "softmax" or count is None:
            return None
        if self._unseen is not None:
            return self._unseen.draw(users, count, draw)
        return draw_items(self._item_count, (len(users), count) if self._recipe.loss in OWN_NEGATIVES else count, draw)


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

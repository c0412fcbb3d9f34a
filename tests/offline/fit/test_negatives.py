"""Negatives: where they come from, whom they spare, and that they repeat by seed."""

import numpy as np
import pytest

from training.fit.batches import Samples
from training.fit.negatives import UnseenItems, draw_items
from training.recipe import TrainRecipe

V = 12


def test_own_negatives_are_unseen_and_uniform(make_histories):
    """No draw is in its user's history, and every other item comes as often as the next."""
    unseen = UnseenItems(make_histories([[1, 2, 3, 3], [12], list(range(1, 12))]), V)
    rows = np.repeat([0, 1, 2], 4000)
    drawn = unseen.draw(rows, 2, np.random.default_rng(0))
    counts = np.stack([np.bincount(drawn[rows == row].reshape(-1), minlength=V) for row in range(3)])
    assert not counts[0, :3].any()
    assert counts[0, 3:] / 8000 == pytest.approx(1 / 9, abs=0.015)
    assert counts[1, :11] / 8000 == pytest.approx(1 / 11, abs=0.015)
    assert counts[2, 11] / 8000 > 0.8  # one item left: redraws find it nearly always, and end in any case


def test_who_knows_every_item_still_gets_negatives(make_histories):
    """Redrawing ends where nothing is left to draw."""
    drawn = UnseenItems(make_histories([range(1, V + 1)]), V).draw(
        np.zeros(5, dtype=np.int64), 3, np.random.default_rng(0)
    )
    assert drawn.shape == (5, 3)
    assert ((drawn >= 0) & (drawn < V)).all()


def test_shared_negatives_are_uniform():
    """One set for a batch, every item as likely as the next."""
    drawn = draw_items(V, 60_000, np.random.default_rng(0))
    assert np.bincount(drawn, minlength=V) / 60_000 == pytest.approx(1 / V, abs=0.005)


def test_a_batch_has_negatives_of_its_users(make_histories):
    """Windows of long histories and crops find their user's whole history: none of it is a negative."""
    histories = make_histories([[*range(1, 7)] * 3, [], [*range(7, 13)] * 3])
    recipe = TrainRecipe(loss="bce", negatives=3, crop_probability=0.5, mask_copies=20, batch_size=16)
    samples = Samples(histories, recipe, max_length=5, item_count=V, causal=True)
    for step, windows in enumerate(samples.plan_epoch(0)):
        batch = samples.make_batch(windows, 0, step)
        again = samples.make_batch(windows, 0, step).negatives
        assert batch.negatives is not None
        assert again is not None
        assert batch.negatives.shape == (len(batch.targets), 3)
        assert ((batch.targets < 6)[:, None] != (batch.negatives < 6)).all()
        assert np.array_equal(batch.negatives, again)


def test_calibrated_negatives_are_any_items_for_each_target(make_histories):
    """As gSASRec's authors draw them: each place has its own K, all items alike, seen ones too."""
    recipe = TrainRecipe(loss="gbce", negatives=500)
    samples = Samples(make_histories([[1, 2, 3], [4]]), recipe, max_length=4, item_count=V, causal=True)
    batch = samples.make_batch(samples.plan_epoch(0)[0], 0, 0)
    assert batch.negatives is not None
    counts = np.stack([np.bincount(drawn, minlength=V) for drawn in batch.negatives])
    assert counts.shape == (4, V)
    assert counts / 500 == pytest.approx(1 / V, abs=0.06)
    assert len(np.unique(counts, axis=0)) == 4


@pytest.mark.parametrize("loss", ["sampled_softmax", "bpr_max", "top1_max"])
def test_shared_negatives_come_once_a_batch(make_histories, loss):
    """K of them, other ones in each step; the full softmax has none."""
    recipe = TrainRecipe(loss=loss, negatives=5)
    samples = Samples(make_histories([[1, 2, 3]]), recipe, max_length=4, item_count=V)
    windows = samples.plan_epoch(0)[0]
    first, second = (samples.make_batch(windows, 0, step).negatives for step in (0, 1))
    assert first is not None
    assert second is not None
    assert first.shape == second.shape == (5,)
    assert not np.array_equal(first, second)
    full = Samples(make_histories([[1, 2, 3]]), TrainRecipe(), max_length=4, item_count=V)
    assert full.make_batch(windows, 0, 0).negatives is None

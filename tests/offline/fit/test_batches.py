"""Training samples: how much is masked, what is asked, and that nothing repeats but by seed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.contract.vocabulary import PAD
from training.fit.batches import Samples
from training.fit.masks import draw_masks
from training.recipe import TrainRecipe

V = 50
MASK = V + 1


@pytest.fixture
def make_cloze(make_histories):
    """A maker of samples over 300 random histories of 1 to 40 items."""
    draw = np.random.default_rng(7)
    rows = [draw.integers(1, V + 1, draw.integers(1, 41)) for _ in range(300)]

    def make(**recipe):
        return Samples(make_histories(rows), TrainRecipe(**recipe), max_length=20, item_count=V)

    return make


def _batches(cloze, epoch):
    return [(windows, cloze.make_batch(windows, epoch, step)) for step, windows in enumerate(cloze.plan_epoch(epoch))]


def test_targets_are_what_the_masks_hide(make_cloze):
    """Masked tokens become MASK, the others stay, targets are the hidden items' columns, never PAD or MASK."""
    for windows, batch in _batches(make_cloze(batch_size=32), 0):
        original = windows.cut_windows(20).item_ids
        shown = batch.input.item_ids
        assert np.array_equal(np.flatnonzero(shown == MASK), batch.positions)
        assert np.array_equal(original.reshape(-1)[batch.positions] - 1, batch.targets)
        assert batch.targets.min() >= 0
        assert batch.targets.max() < V
        assert np.array_equal(shown[shown != MASK], original[shown != MASK])
        assert ((shown == MASK).sum(axis=1) >= 1).all()


def test_the_masked_share_is_about_rho(make_cloze):
    """Over an epoch of long rows the masked share is rho."""
    batches = [batch for _, batch in _batches(make_cloze(mask_probability=0.3, last_item_share=0.0), 0)]
    tokens = sum(int(batch.input.lengths.sum()) for batch in batches)
    assert sum(len(batch.positions) for batch in batches) / tokens == pytest.approx(0.3, abs=0.02)


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
    st.floats(0.01, 0.99),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 2**32),
)
def test_masks_keep_their_number_and_never_touch_padding(lengths, probability, share, seed):
    """Each row has round(n * rho) masks, at least one, or the last alone; padding has none."""
    lengths = np.array(lengths, dtype=np.int32)
    T = int(lengths.max())
    recipe = TrainRecipe(mask_probability=probability, last_item_share=share)
    masked = draw_masks(lengths, T, recipe, np.random.default_rng(seed))
    counts = masked.sum(axis=1)
    expected = np.maximum(1, np.rint(lengths * probability)).astype(int)
    last_only = (counts == 1) & masked[:, -1]
    assert not masked[np.arange(T) < T - lengths[:, None]].any()
    assert ((counts == expected) | last_only).all()
    assert share < 1.0 or last_only.all()
    assert share > 0.0 or (counts == expected).all()


def test_a_count_of_masks_goes_over_the_share():
    """With mask_count 1 each row hides one item, any of them; more than a row has hide the row."""
    lengths = np.array([1, 2, 20] * 300, dtype=np.int32)
    one = draw_masks(lengths, 20, TrainRecipe(mask_count=1, last_item_share=0.0), np.random.default_rng(1))
    assert (one.sum(axis=1) == 1).all()
    assert set(np.nonzero(one[lengths == 20])[1]) == set(range(20))
    five = draw_masks(lengths, 20, TrainRecipe(mask_count=5, last_item_share=0.0), np.random.default_rng(1))
    assert (five.sum(axis=1) == np.minimum(lengths, 5)).all()


def test_a_causal_network_trains_every_real_place(make_histories):
    """The windows are shown as they are, and each of their items is a target at its own place."""
    rows = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
    samples = Samples(make_histories(rows), TrainRecipe(), max_length=4, item_count=V, causal=True)
    windows = samples.plan_epoch(0)[0]
    batch = samples.make_batch(windows, 0, 0)
    assert np.array_equal(batch.input.item_ids, windows.cut_windows(4).item_ids)
    assert np.array_equal(batch.positions, np.flatnonzero(batch.input.item_ids))
    assert np.array_equal(batch.targets + 1, batch.input.item_ids[batch.input.item_ids != PAD])


@pytest.mark.parametrize("loss", ["softmax", "bce", "gbce", "bpr_max"])
def test_shares_of_a_batch_are_its_rows(make_histories, loss):
    """Two ranks' shares hold every window and every target with its negatives once, at the right places."""
    recipe = TrainRecipe(loss=loss, negatives=3)
    samples = Samples(make_histories([[1, 2, 3], [4], [5, 6, 7, 8, 9]]), recipe, max_length=4, item_count=V)
    batch = samples.make_batch(samples.plan_epoch(0)[0], 0, 0)
    shares = [batch.share(rank, 2) for rank in (0, 1)]
    assert sum(len(share.targets) for share in shares) == len(batch.targets)
    for rank, share in enumerate(shares):
        assert np.array_equal(share.input.item_ids, batch.input.item_ids[rank::2])
        assert (share.input.item_ids.reshape(-1)[share.positions] == MASK).all()
        mine = batch.positions // batch.input.item_ids.shape[1] % 2 == rank
        assert np.array_equal(share.targets, batch.targets[mine])
        assert (share.negatives is None) == (batch.negatives is None) == (loss == "softmax")
        if share.negatives is None or batch.negatives is None:
            continue
        if loss in {"bce", "gbce"}:
            assert np.array_equal(share.negatives, batch.negatives[mine])
        else:
            assert np.array_equal(share.negatives, batch.negatives)


@pytest.mark.parametrize("asked", [{"mask_probability": 0.5}, {"mask_count": 9}], ids=str)
def test_masks_are_capped(asked):
    """With max_masks 4 long rows hide 4 items, any of them, short ones what they would without; last items stay."""
    lengths = np.repeat([3, 8, 9, 20], 500).astype(np.int32)
    recipe = TrainRecipe(**asked, last_item_share=0.0)
    free, capped = (
        draw_masks(lengths, 20, kind, np.random.default_rng(1)) for kind in (recipe, replace(recipe, max_masks=4))
    )
    assert free.sum(axis=1).max() > 4
    assert np.array_equal(capped.sum(axis=1), np.minimum(free.sum(axis=1), 4))
    assert np.array_equal(capped[:500], free[:500])
    assert (free | ~capped).all()
    assert capped[-500:].any(axis=0).all()


def test_the_share_of_last_item_samples_is_kept():
    """With long rows only a last-item sample has a single mask; their share is the recipe's."""
    recipe = TrainRecipe(mask_probability=0.5, last_item_share=0.25)
    masked = draw_masks(np.full(4000, 20, dtype=np.int32), 20, recipe, np.random.default_rng(0))
    single = masked.sum(axis=1) == 1
    assert masked[single][:, -1].all()
    assert single.mean() == pytest.approx(0.25, abs=0.03)


def test_masks_are_drawn_anew_in_each_epoch_and_repeat_by_seed(make_cloze):
    """Two epochs differ, the same epoch of the same seed does not, another seed does."""

    def show(cloze, epoch):
        return np.concatenate([batch.input.item_ids.reshape(-1) for _, batch in _batches(cloze, epoch)])

    first = show(make_cloze(seed=3), 0)
    assert np.array_equal(first, show(make_cloze(seed=3), 0))
    assert not np.array_equal(first, show(make_cloze(seed=3), 1))
    assert not np.array_equal(first, show(make_cloze(seed=4), 0))


def test_plan_and_masks_draw_from_different_streams(make_cloze):
    """The plan of an epoch and the masks of its first step must not share random numbers."""
    plan = np.random.default_rng([1, 0, 0]).random(4)
    assert not np.array_equal(plan, np.random.default_rng([1, 0, 1]).random(4))
    cloze = make_cloze(batch_size=300)
    windows = cloze.plan_epoch(0)[0]
    first, second = cloze.make_batch(windows, 0, 0), cloze.make_batch(windows, 0, 1)
    assert not np.array_equal(first.input.item_ids, second.input.item_ids)


def test_an_epoch_holds_every_window_as_often_as_copies_say(make_cloze):
    """Samples of an epoch are the windows times copies, in as many batches as promised."""
    once, thrice = make_cloze(batch_size=64), make_cloze(batch_size=64, mask_copies=3)
    assert thrice.samples == 3 * once.samples
    plan = thrice.plan_epoch(5)
    assert len(plan) == thrice.steps == -(-thrice.samples // 64)
    ends = np.sort(np.concatenate([windows.ends for windows in plan]))
    assert np.array_equal(ends, np.repeat(np.sort(np.concatenate([w.ends for w in once.plan_epoch(0)])), 3))


def test_cropped_samples_end_anywhere_in_their_own_history(make_histories):
    """Cropped always, every end occurs, no sample is empty or longer than the window, none leaves its history."""
    cloze = Samples(
        make_histories([range(1, 11), range(11, 14)]),
        TrainRecipe(crop_probability=1.0, mask_copies=400),
        max_length=4,
        item_count=13,
    )
    plan = cloze.plan_epoch(0)
    rows = {tuple(row.tolist()) for windows in plan for row in windows}
    long = {tuple(range(max(1, end - 3), end + 1)) for end in range(1, 11)}
    short = {tuple(range(11, end + 1)) for end in range(11, 14)}
    assert rows == long | short


def test_batches_hold_little_padding(make_histories):
    """Windows of like length share a batch: far less padding than batches by chance would have."""
    draw = np.random.default_rng(0)
    rows = [draw.integers(1, V + 1, draw.integers(1, 201)) for _ in range(2000)]
    cloze = Samples(make_histories(rows), TrainRecipe(batch_size=64), max_length=200, item_count=V)
    inputs = [windows.cut_windows(200) for windows in cloze.plan_epoch(0)]
    padded = sum(int((window.item_ids == PAD).sum()) for window in inputs)
    assert padded / sum(window.item_ids.size for window in inputs) < 0.05

"""Drawn negatives: what may be drawn, how often, and what happens where too little is left."""

import numpy as np
import pytest

from training.data.histories import Histories
from training.data.split import Questions
from training.errors import DataError
from training.evaluation.sampled_candidates import draw_popular, draw_uniform

COUNTS = np.array([60, 25, 10, 4, 1, 0])


def _ask(history, target, times):
    """The same question many times."""
    items = np.array(history, dtype=np.int32)
    starts = np.zeros(times, dtype=np.int64)
    return Questions(Histories(items, starts, starts + len(items)), np.full(times, target, dtype=np.int32))


def _first_share(counts, taken, item):
    """The chance that `item` is drawn next once `taken` is out of the urn."""
    left = np.array(counts, dtype=float)
    left[[index - 1 for index in taken]] = 0
    return left[item - 1] / left.sum()


@pytest.mark.parametrize("heavy", [False, True])
def test_popular_negatives_follow_the_law_of_drawing_without_replacement(heavy):
    """First and second places are as likely as an urn has it, also where most events are of refused items."""
    counts = np.array([100_000, *COUNTS]) if heavy else COUNTS
    shift = int(heavy)
    questions = _ask([1] if heavy else [], 4 + shift, 20_000)
    drawn = draw_popular(questions, counts, 3, np.random.default_rng(1), unseen=True)
    gone = [1, 5] if heavy else [4]
    for first in (1, 2, 3, 5):
        share = _first_share(counts, gone, first + shift)
        assert (drawn[:, 0] == first + shift).mean() == pytest.approx(share, abs=0.01)
        if first != 1:
            after = drawn[drawn[:, 0] == 1 + shift][:, 1]
            expected = _first_share(counts, [*gone, 1 + shift], first + shift)
            assert (after == first + shift).mean() == pytest.approx(expected, abs=0.015)


def test_popular_negatives_are_distinct_and_allowed():
    """No target, no item twice, none that never occurs; seen items only where they may be drawn."""
    questions = _ask([1], 3, 500)
    unseen = draw_popular(questions, COUNTS, 3, np.random.default_rng(2), unseen=True)
    assert {tuple(sorted(row)) for row in unseen.tolist()} == {(2, 4, 5)}
    seen = draw_popular(questions, COUNTS, 3, np.random.default_rng(2), unseen=False)
    assert all(len(set(row)) == 3 for row in seen.tolist())
    assert set(seen.ravel().tolist()) == {1, 2, 4, 5}


@pytest.mark.parametrize(("wanted", "enough"), [(3, True), (4, False)])
def test_too_few_items_are_an_error(wanted, enough):
    """Four items can be drawn and one is seen: three negatives exist, a fourth does not."""
    questions = _ask([1], 3, 2)
    if enough:
        assert draw_popular(questions, COUNTS, wanted, np.random.default_rng(0), unseen=True).shape == (2, 3)
    else:
        with pytest.raises(DataError, match="fewer than 4 items"):
            draw_popular(questions, COUNTS, wanted, np.random.default_rng(0), unseen=True)


def test_uniform_negatives_are_even_and_may_repeat_or_be_the_target():
    """Items 2 to 5 of 5 are drawn a quarter each, the target 5 among them, more often than there are items."""
    questions = _ask([1], 5, 1000)
    drawn = draw_uniform(questions, 5, 8, np.random.default_rng(3), but=questions.histories)
    shares = np.bincount(drawn.ravel(), minlength=6)[1:] / drawn.size
    assert shares[0] == 0
    assert shares[1:] == pytest.approx([0.25] * 4, abs=0.02)


def test_uniform_negatives_need_one_item():
    """Who has seen everything can be given nothing."""
    questions = _ask([1, 2, 3], 3, 1)
    with pytest.raises(DataError, match="fewer than 1 item"):
        draw_uniform(questions, 3, 8, np.random.default_rng(0), but=questions.histories)


def test_draws_do_not_depend_on_anything_but_the_seed():
    """The same seed draws the same, another one does not."""
    questions = _ask([], 5, 50)
    draws = [draw_popular(questions, COUNTS, 2, np.random.default_rng(seed), unseen=True) for seed in (1, 1, 2)]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])

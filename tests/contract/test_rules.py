"""The rules of a bundle: what was written is read, scored as plain loops do, and anything else is refused."""

from dataclasses import replace

import numpy as np
import pytest

from model.contract.rules import Rules, share_below_rules

V = 6


@pytest.fixture
def rules():
    """Seven rules of six items; nothing follows the third and the last."""
    return Rules(
        starts=np.array([0, 0, 2, 3, 3, 5, 7, 7]),
        followers=np.array([2, 4, 1, 5, 2, 6, 1], dtype=np.int32),
        weights=np.array([0.9, 0.25, 0.5, 1.5, 0.125, 0.75, 0.5], dtype=np.float32),
        decay=0.5,
        window=3,
    )


def score_slowly(rules, history):
    """One rule after the other."""
    scores = np.zeros(V)
    for age, item in enumerate(history[::-1][: rules.window]):
        for place in range(rules.starts[item], rules.starts[item + 1]):
            scores[rules.followers[place] - 1] += float(rules.weights[place]) * rules.decay**age
    return scores


@pytest.mark.parametrize(
    "history", [[], [1], [3], [6, 3], [4, 1], [1, 1, 5], [5, 4, 2, 1], [2, 2, 2, 2, 2], [1, 2, 3, 4, 5, 6]]
)
def test_scores_are_the_plain_loops(rules, history):
    """Repeats, items that nothing follows, histories beyond the window."""
    asked = np.array(history, dtype=np.int32)
    np.testing.assert_allclose(rules.score(asked), score_slowly(rules, history))
    assert rules.score(asked).shape == (V,)


def test_what_is_written_is_read(rules):
    """Arrays and numbers come back."""
    read = Rules.from_bytes(rules.to_bytes(), V)
    for name in ("starts", "followers", "weights"):
        np.testing.assert_array_equal(getattr(read, name), getattr(rules, name))
    assert (read.decay, read.window, read.item_count) == (0.5, 3, V)
    none = replace(
        rules, starts=np.zeros(V + 2, dtype=np.int64), followers=rules.followers[:0], weights=rules.weights[:0]
    )
    assert not Rules.from_bytes(none.to_bytes(), V).score(np.array([1, 2], dtype=np.int32)).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"starts": np.array([0, 0, 2, 3, 3, 5, 7])}, "do not lie one item after the other"),
        ({"starts": np.array([0, 0, 2, 3, 3, 5, 7, 6])}, "do not lie one item after the other"),
        ({"starts": np.array([0, 0, 3, 2, 3, 5, 7, 7])}, "do not lie one item after the other"),
        ({"starts": np.array([0, 1, 2, 3, 3, 5, 7, 7])}, "do not lie one item after the other"),
        ({"weights": np.ones(6, dtype=np.float32)}, "do not lie one item after the other"),
        ({"followers": np.array([2, 4, 1, 5, 2, 7, 1], dtype=np.int32)}, "lead to no item"),
        ({"followers": np.array([2, 4, 0, 5, 2, 6, 1], dtype=np.int32)}, "lead to no item"),
        ({"followers": np.array([2, 4, 1, 5, 2, 6, 1])}, "not starts, followers, weights and numbers"),
        ({"weights": np.array([1, 1, 1, 0, 1, 1, 1], dtype=np.float32)}, "no number above 0"),
        ({"weights": np.array([1, 1, 1, np.nan, 1, 1, 1], dtype=np.float32)}, "no number above 0"),
        ({"weights": np.array([1, 1, 1, np.inf, 1, 1, 1], dtype=np.float32)}, "no number above 0"),
        ({"decay": 0.0}, "a decay"),
        ({"decay": float("nan")}, "a decay"),
        ({"window": 0}, "a window"),
        ({"window": 2.5}, "a window"),
        ({"window": float("inf")}, "a window"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_what_is_no_rule_is_refused(rules, change, message):
    """Before anything is scored by it."""
    content = replace(rules, **change).to_bytes()
    with pytest.raises(ValueError, match=message):
        Rules.from_bytes(content, V)


@pytest.mark.parametrize("cut", [0, 10, 400, -1])
def test_a_part_is_refused(rules, cut):
    """Whatever was cut off."""
    with pytest.raises(ValueError, match="no arrays"):
        Rules.from_bytes(rules.to_bytes()[:cut], V)


def test_popularity_is_less_than_any_rule():
    """It decides among items that no rule names, and only there."""
    counts = np.array([0, 5, 1_000_000_000])
    shares = share_below_rules(counts)
    assert (np.argsort(shares) == [0, 1, 2]).all()
    assert shares.max() < 0.7**49 / 20 / 1e3

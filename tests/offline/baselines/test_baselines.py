"""Count-based baselines against plain loops over what a log holds."""

import math

import numpy as np
import pytest

from model.contract import rules as published
from training.baselines import rules as counting
from training.baselines.catalogue import make_baseline
from training.baselines.neighbours import ItemNeighbours, SessionNeighbours, gather_sessions
from training.baselines.popular import RecentPopularity
from training.errors import DataError
from training.recipe_models import BASELINES

V = 9


@pytest.fixture
def random_rows():
    """Forty random histories with repeats, some of them empty, and twenty to be asked about."""
    draw = np.random.default_rng(5)
    train = [draw.integers(1, V + 1, size=draw.integers(0, 9)).tolist() for _ in range(40)]
    return train, [draw.integers(1, V + 1, size=draw.integers(1, 9)).tolist() for _ in range(20)]


def test_popularity_of_late_counts_the_last_days(make_histories):
    """Only events of the last day before the newest one count; older counts decide between equals."""
    day = 86_400_000
    times = np.array([0, 0, 0, 5 * day, 5 * day + 1, 6 * day])
    scores = RecentPopularity(make_histories([[1, 1, 2], [1, 3, 2]]), 4, times, days=1.0).score(
        make_histories([[], [1]])
    )
    assert scores[0].argsort(descending=True).tolist()[:3] == [1, 2, 0]
    assert scores[0].floor().tolist() == [0, 1, 1, 0]
    assert scores[0].tolist() == scores[1].tolist()


def test_popularity_of_late_wants_times(make_histories):
    """Without times there is no late."""
    with pytest.raises(DataError, match="needs a log with times"):
        RecentPopularity(make_histories([[1]]), 1, None, days=7.0)


@pytest.mark.parametrize("neighbours", [3, 100])
def test_item_neighbours_are_cosines_between_columns(make_histories, random_rows, neighbours):
    """The sum over the newest different items of what the users of two items have in common, by their roots."""
    train, asked = random_rows
    users = [{row for row, history in enumerate(train) if item in history} for item in range(1, V + 1)]
    similar = np.array(
        [[len(a & b) / math.sqrt(len(a) * len(b)) * (a is not b) if a and b else 0.0 for b in users] for a in users]
    )
    clear = np.array([len(np.unique(np.round(row[row > 0], 9))) == (row > 0).sum() for row in similar])
    for row in similar:
        row[np.argsort(-row, kind="stable")[neighbours:]] = 0
    scorer = ItemNeighbours(make_histories(train), V, neighbours=neighbours, window=4)
    scores = scorer.score(make_histories(asked)).numpy()
    expected = np.array([similar[np.array(sorted(set(history[-4:]))) - 1].sum(axis=0) for history in asked])
    if neighbours == 3:  # which of equal neighbours is kept hangs on the last bit: compare where there are no equals
        rows = [bool(clear[np.array(history[-4:]) - 1].all()) for history in asked]
        assert any(rows)
        scores, expected = scores[rows], expected[rows]
    assert np.allclose(scores, expected, atol=1e-6)


def _score_by_sessions(train, history, neighbours, window):
    """VMIS-kNN in loops over sessions."""
    newest = history[-window:]
    likeness = {}
    for session, met in enumerate(train):
        places = {item: place for place, item in enumerate(newest, 1) if item in met}
        if places:
            likeness[session] = (sum(places.values()) / len(newest), len(newest) - max(places.values()))
    near = sorted(likeness, key=lambda session: (-round(likeness[session][0], 9), session))[:neighbours]
    filled = sum(map(bool, train))
    scores = np.zeros(V)
    for session in near:
        alike, age = likeness[session]
        for item in set(train[session]):
            rarity = 1 + math.log(filled / sum(item in met for met in train))
            scores[item - 1] += alike * max(0, 1 - age / 10) * rarity
    return scores


@pytest.mark.parametrize("neighbours", [2, 5, 100])
def test_session_neighbours_are_the_plain_loops(make_histories, random_rows, neighbours):
    """Likeness, the best sessions, decay and rarity, summed up one session and one item at a time."""
    train, asked = random_rows
    sessions = make_histories(train)
    scorer = SessionNeighbours(gather_sessions(sessions, V, None, neighbours=neighbours, window=5), sessions)
    expected = [_score_by_sessions(train, history, neighbours, 5) for history in asked]
    assert np.allclose(scorer.score(make_histories(asked)).numpy(), expected, atol=1e-6)


def test_only_the_newest_sessions_are_candidates(make_histories):
    """With room for one candidate the session that ended last is it, however alike another one is."""
    train = make_histories([[1, 2, 3], [1, 4], [5]])
    for ends, winner in (((9, 8), 3), ((7, 8), 4)):
        times = np.array([1, 2, ends[0], 3, ends[1], 99])
        scorer = SessionNeighbours(gather_sessions(train, 5, times, neighbours=1, candidates=1), train)
        assert scorer.score(make_histories([[1]]))[0].tolist()[winner - 1] > 1e-3


def test_published_rules_are_those_that_are_measured(make_histories, random_rows):
    """What a bundle holds scores as the baseline `rules` does, and ranks alike, popularity included."""
    train, asked = random_rows
    scorer = make_baseline(BASELINES["rules"](name="rules"), make_histories(train), V, None)
    rules = published.Rules.from_bytes(counting.gather_rules(make_histories(train), V).to_bytes(), V)
    shares = published.share_below_rules(np.bincount(np.concatenate(train).astype(int), minlength=V + 1)[1:])
    for history in ([], *asked):
        expected = scorer.score(make_histories([history]))[0].numpy()
        scores = rules.score(np.array(history, dtype=np.int32)) + shares
        np.testing.assert_allclose(scores, expected, rtol=1e-6)
        assert (np.argsort(-scores, kind="stable") == np.argsort(-expected, kind="stable")).all()


@pytest.mark.parametrize(("followers", "most"), [(3, 2**24), (200, 3 * V)])
def test_published_rules_are_the_weightiest(make_histories, random_rows, monkeypatch, followers, most):
    """So many of each item, and so many in all; equal ones by index."""
    monkeypatch.setattr(counting, "FOLLOWERS", followers)
    monkeypatch.setattr(counting, "MOST_PUBLISHED", most)
    train = make_histories(random_rows[0])
    counts = counting.count_rules(train, V)
    whole = counts.toarray() * counting.scale_rules(counts.sum(axis=1))[:, None]
    rules = counting.gather_rules(train, V)
    for item in range(1, V + 1):
        own = slice(rules.starts[item], rules.starts[item + 1])
        expected = sorted((-weight, follower) for follower, weight in enumerate(whole[item], 1) if weight)[:3]
        assert rules.followers[own].tolist() == [follower for _, follower in expected]
        np.testing.assert_allclose(rules.weights[own], [-weight for weight, _ in expected], rtol=1e-6)
    assert rules.starts[0] == rules.starts[1] == 0
    assert len(rules.followers) == 3 * V


@pytest.mark.parametrize("name", BASELINES)
def test_every_counter_knows_what_to_say_of_nothing(make_histories, name):
    """An empty history, and items that nobody met in training, are answered by popularity in finite numbers."""
    train = make_histories([[1, 2, 2], [2, 3], []])
    baseline = make_baseline(BASELINES[name](name=name), train, 5, np.arange(5))
    scores = baseline.score(make_histories([[], [5]]))
    assert scores.shape == (2, 5)
    assert scores.isfinite().all()
    assert scores.argmax(dim=1).tolist() == [1, 1]
    scores.zero_()  # the caller may overwrite what it was given
    assert baseline.score(make_histories([[]])).argmax().item() == 1

"""The rankers that count: their lists against scores sorted by hand."""

import numpy as np
import pytest

from model.contract.allowed import Allowed
from model.contract.query import Question
from model.contract.rules import Rules
from model.contract.sessions import Sessions
from service.inference.counted import Counted

V = 30


@pytest.fixture(scope="module")
def neighbours():
    """Forty random sessions of thirty items."""
    draw = np.random.default_rng(3)
    rows = [np.unique(draw.integers(1, V + 1, size=draw.integers(0, 9))) for _ in range(40)]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    items = np.concatenate(rows).astype(np.int32)
    sessions = Sessions(item_count=V, starts=starts, items=items, moments=draw.integers(0, 9, size=40))
    return Counted.from_sessions(sessions, draw.integers(0, 50, size=V))


@pytest.fixture(scope="module")
def rules():
    """Up to eight random followers of each of thirty items."""
    draw = np.random.default_rng(4)
    rows = [draw.permutation(V)[: draw.integers(0, 9)] + 1 for _ in range(V)]
    starts = np.concatenate([[0, 0], np.cumsum([len(row) for row in rows])])
    weights = draw.integers(1, 4, size=starts[-1]).astype(np.float32)  # many equal ones
    followers = np.concatenate(rows).astype(np.int32)
    return Counted.from_rules(Rules(starts=starts, followers=followers, weights=weights), draw.integers(0, 50, size=V))


@pytest.mark.parametrize("name", ["neighbours", "rules"])
@pytest.mark.parametrize("seed", range(20))
def test_lists_are_the_scores_in_order(request, name, seed):
    """The k best of what is left, or of the candidates, then by popularity, then by index: never too few."""
    counted = request.getfixturevalue(name)
    assert counted.name == name
    draw = np.random.default_rng(seed)
    history, exclude, some = (draw.integers(1, V + 1, size=size).astype(np.int32) for size in (6, 9, 12))
    candidates = some if seed % 2 else None
    mask = Allowed(draw.random(V + 2) < 0.7) if seed % 3 else None
    k = int(draw.integers(1, 2 * V))
    question = Question(history=history, exclude=exclude, candidates=candidates, k=k, allowed=mask)
    scores = counted.source.score(history) + counted.shares
    allowed = set(range(1, V + 1) if candidates is None else candidates.tolist()) - set(exclude.tolist())
    allowed -= set(() if mask is None else mask.forbidden.tolist())
    expected = sorted(allowed, key=lambda item: (-scores[item - 1], item))[: question.k]
    indexes, found = counted.rank(question)
    assert indexes.tolist() == expected
    assert found.tolist() == [scores[item - 1] for item in expected]


def test_one_history_is_scored_once(neighbours, monkeypatch):
    """However many questions a request's rules make of it; another one, however equal, is scored by itself."""
    score, scored = Sessions.score, []

    def note(self, history):
        scored.append(history)
        return score(self, history)

    monkeypatch.setattr(Sessions, "score", note)
    question = Question(np.array([3, 5], dtype=np.int32), np.empty(0, dtype=np.int32), None, 5)
    first = neighbours.rank(question)[0].tolist()
    rest = neighbours.rank(question._replace(exclude=np.array(first, dtype=np.int32), k=V))[0].tolist()
    assert sorted(first + rest) == [*range(1, V + 1)]
    assert len(scored) == 1
    assert neighbours.rank(question._replace(history=question.history.copy()))[0].tolist() == first
    assert len(scored) == 2

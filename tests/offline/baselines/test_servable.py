"""What a bundle holds of a counter ranks as the counter does offline."""

import numpy as np
import pytest

from training.baselines.catalogue import make_baseline
from training.baselines.servable import count_for_service
from training.recipe_models import BASELINES

V = 40


@pytest.fixture(scope="module")
def histories():
    """Drawn histories, some items far more popular than others; and a time for every event."""
    draw = np.random.default_rng(3)
    return [(1 + draw.zipf(1.4, size=draw.integers(1, 25)) % V).tolist() for _ in range(80)]


@pytest.mark.parametrize("name", ["pop", "recent-pop", "markov", "rules", "item-knn"])
def test_the_same_order_as_offline(make_histories, histories, name):
    """The offline scores, in the order of the bundle's, fall: nobody's own history left out, as in a service."""
    train = make_histories(histories)
    times_ms = np.arange(len(train.items)) * 3_600_000
    recipe = BASELINES[name](name=name)
    offline = make_baseline(recipe, train, V, times_ms, leave_own_out=False).score(train).numpy()
    counted = count_for_service(recipe, train, V, times_ms)
    assert counted is not None
    for row, history in enumerate(train):
        order = np.argsort(-counted.score(history), kind="stable")
        assert (np.diff(offline[row][order]) <= 1e-3 * np.abs(offline[row][order][:-1])).all()


def test_sessions_are_no_counts(make_histories, histories):
    """session-knn compares whole histories: there is nothing to put into a graph."""
    recipe = BASELINES["session-knn"](name="session-knn")
    assert count_for_service(recipe, make_histories(histories), V, None) is None

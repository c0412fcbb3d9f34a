"""What is held out, how the answers of graphs are measured, and when a candidate passes."""

from dataclasses import replace

import numpy as np
import pytest

from training.data.split import Questions
from training.errors import DataError
from training.evaluation.bootstrap import estimate_clustered_intervals
from training.evaluation.ranking import NetworkScorer
from training.logs.reader import read_log
from training.recipe import DataRecipe
from training.retrain.champion import find_champion
from training.retrain.held_out import count_new, hold_out
from training.retrain.history_gain import find_lenders, measure_history_gain
from training.retrain.offline_trial import (
    CANDIDATE,
    CHAMPION,
    Graph,
    answer_by_counting,
    answer_questions,
    judge,
)
from training.runs.networks import load_network


@pytest.fixture
def timed_log(make_log):
    """30 users of 10 events each, one a second, users by turns; the last items of user 0 are repeated."""
    rows = [[(user + step) % 12 + 1 for step in range(10)] for user in range(30)]
    rows[0][8:] = [1, 2]
    return replace(make_log(rows), timestamps_ms=np.concatenate([np.arange(10) * 30_000 + user for user in range(30)]))


def test_newest_third_of_what_is_new_is_held_out(timed_log):
    """So the champion, which has learned until then, has learned from no question, nor from what stops the training."""
    learned_until_ms = int(np.sort(timed_log.timestamps_ms)[209])
    new = count_new(timed_log, learned_until_ms)
    held = hold_out(timed_log, new)
    assert new == 90
    assert held.from_ms > learned_until_ms
    assert len(held.asked) == 29  # user 0 met the item before
    assert (timed_log.timestamps_ms[held.positions] >= held.from_ms).all()
    assert np.array_equal(timed_log.items[held.positions], held.asked.targets)
    assert np.array_equal(np.searchsorted(timed_log.offsets, held.positions, side="right") - 1, held.owners)
    positions = held.split.train.find_positions()[1]
    assert (
        timed_log.timestamps_ms[positions].max() < timed_log.timestamps_ms[held.split.validation.histories.ends].min()
    )
    assert timed_log.timestamps_ms[held.split.validation.histories.ends].min() > learned_until_ms


def test_log_without_times_or_events(timed_log):
    """Nobody can say what is new in it."""
    with pytest.raises(DataError, match="no times"):
        count_new(replace(timed_log, timestamps_ms=None), None)
    with pytest.raises(DataError, match="too short"):
        hold_out(timed_log, 2)
    assert count_new(timed_log, None) == 300


def read_later(place, events, *, shuffled=False):
    """The whole log, of which the place's champion does not know the late items."""
    items = [item for _, item, _ in events]
    if shuffled:
        items = np.random.default_rng(1).permutation(items).tolist()
    rows = [(user, item, time) for (user, _, time), item in zip(events, items, strict=True)]
    return read_log(place.write_csv("later.csv", rows), DataRecipe())


def test_graph_answers_as_the_network_ranks(place, events):
    """Under its own indexes, with items that it does not know: they are a miss, and no part of histories."""
    log = read_later(place, events)
    champion = find_champion(place.bundles, place.runs)
    assert champion.run is not None
    network, known = load_network(champion.run), champion.run.vocabulary
    asked = hold_out(log, 1600).asked
    gains = answer_questions(Graph.of_bundle(champion.bundle), log, asked)
    index_of = np.append(0, known.encode(log.vocabulary.item_ids))
    unknown = index_of[asked.targets] < 0
    assert unknown.any()
    assert (gains["NDCG@10"][unknown] == 0).all()
    rows = np.flatnonzero(~unknown)
    histories = [index_of[asked.histories[int(row)]] for row in rows]
    histories = [history[history > 0].astype(np.int32) for history in histories]
    ends = np.cumsum([len(history) for history in histories])
    same = type(asked.histories)(np.concatenate(histories), np.append(0, ends[:-1]), ends)
    wanted = answer_by_counting(NetworkScorer(network), Questions(same, index_of[asked.targets[rows]].astype(np.int32)))
    assert gains["NDCG@10"][rows] == pytest.approx(wanted["NDCG@10"], abs=1e-6)
    assert gains["HR@10"][rows] == pytest.approx(wanted["HR@10"])


@pytest.mark.parametrize("shuffled", [False, True])
def test_own_history_helps_where_order_says_something(place, events, shuffled):
    """In a walk it says nearly all; in a shuffled log another user's does as well."""
    log = read_later(place, events, shuffled=shuffled)
    held = hold_out(log, 1600)
    graph = Graph.of_bundle(find_champion(place.bundles, place.runs).bundle)
    gain = measure_history_gain(graph, log, held.asked, held.owners)
    low, high = estimate_clustered_intervals(gain[:, None], held.owners, 1)
    assert len(gain) >= 300
    assert bool(low[0] > 0.1) is not shuffled
    assert bool(low[0] < 0 < high[0]) is shuffled


def test_lenders_are_others():
    """Each as often as another; where one user asks everything there is nobody to borrow from."""
    owners = np.array([5, 5, 5, 2, 9, 2])
    lenders = find_lenders(owners)
    assert lenders is not None
    assert (owners[lenders] != owners).all()
    many = find_lenders(np.repeat(owners, 1000))
    assert many is not None
    assert np.bincount(np.repeat(owners, 1000)[many[:3000]], minlength=10)[[2, 9]] == pytest.approx(
        [2000, 1000], rel=0.1
    )
    assert find_lenders(np.zeros(4, dtype=np.int64)) is None


def make_gains(**values):
    """NDCG@10 of each model; HR@10 as well."""
    return {name: {"NDCG@10": array, "HR@10": array} for name, array in values.items()}


@pytest.mark.parametrize(
    ("gain", "questions", "passed"),
    [(0.0, 600, True), (-0.002, 600, True), (-0.02, 600, False), (0.5, 299, False), (0.02, 600, True)],
)
def test_candidate_may_lose_two_percent(gain, questions, passed):
    """And must be shown not to lose more: equal models pass, much worse ones do not, nor does too little evidence."""
    draw = np.random.default_rng(1)
    old = draw.random(questions) * 0.4
    new = np.clip(old + gain + draw.normal(0, 0.001, questions), 0, 1)
    compared = make_gains(**{CANDIDATE: new, CHAMPION: old, "rules": old + 0.1})
    found = judge(compared, np.arange(questions) // 3, history_gain=new)
    assert found["passed"] is passed
    assert ("too few to say" in found["why"]) is (questions < 300)
    assert found["over_rules"]["value"] == pytest.approx((new - old).mean() - 0.1)
    assert found["users"] == len(np.unique(np.arange(questions) // 3))


def test_candidate_must_gain_from_histories():
    """However far ahead it is."""
    draw = np.random.default_rng(1)
    old, owners = draw.random(600) * 0.4, np.arange(600) // 3
    compared = make_gains(**{CANDIDATE: old + 0.2, CHAMPION: old})
    found = judge(compared, owners, history_gain=draw.normal(0, 0.2, 600))
    assert (found["passed"], found["lead"]["low"] > 0.1) == (False, True)
    assert "histories are not shown to help it" in found["why"]
    assert judge(compared, owners, history_gain=draw.normal(0.05, 0.2, 600))["passed"] is True


def test_users_are_drawn_with_all_their_questions():
    """A user who says the same a hundred times has said it once."""
    draw = np.random.default_rng(2)
    own = draw.normal(size=40)
    alone = estimate_clustered_intervals(own[:, None], np.arange(40), 1)
    often = estimate_clustered_intervals(np.repeat(own, 100)[:, None], np.repeat(np.arange(40), 100), 1)
    assert np.array(often) == pytest.approx(np.array(alone))
    low, high = alone
    assert low[0] < own.mean() < high[0]
    assert high[0] - low[0] == pytest.approx(2 * 1.96 * own.std() / np.sqrt(40), rel=0.15)
    with pytest.raises(ValueError, match="no rows"):
        estimate_clustered_intervals(np.zeros((0, 1)), np.zeros(0, dtype=np.int64), 1)

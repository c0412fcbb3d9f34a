"""Nobody is answered by his own history: counts without it, and planted repeats that would be known by it alone."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from training.baselines.catalogue import make_baseline
from training.baselines.rules import count_rules, cut_rules, learn_rules
from training.baselines.rules_of_others import RulesOfOthers
from training.data.histories import Histories
from training.data.split import Questions, leave_one_out
from training.evaluation.metrics import measure_ranks
from training.evaluation.protocol import PROTOCOLS, build_task
from training.evaluation.ranking import evaluate_task, rank_batch
from training.fit.count_weights import RULE_WEIGHTS, Weights, choose_weights, try_weights
from training.recipe import DataRecipe
from training.recipe_models import BASELINES

V = 9
COUNTERS = ("markov", "rules", "item-knn", "session-knn")


@pytest.fixture
def random_log(make_log):
    """Thirty users with many repeats, a few of them with items that nobody else has."""
    draw = np.random.default_rng(5)
    rows = [draw.integers(1, V - 1, size=draw.integers(3, 12)).tolist() for _ in range(30)]
    return make_log([*rows, [8, 9, 8, 9, 8], [9, 1, 9, 1]], item_count=V)


def _leave_out(train, user):
    """The training histories of all other users."""
    return train.select(np.flatnonzero(np.arange(len(train)) != user))


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_answers_as_if_the_asking_user_was_not_counted(random_log, name, few):
    """User by user, the scores are those of the same counter without his training history, few neighbours or many."""
    split = leave_one_out(random_log)
    sizes = {"neighbours": 2} if few and "knn" in name else {"window": 2} if few and name == "rules" else {}
    recipe = BASELINES[name](name=name, **sizes)
    asked = split.test.histories
    scores = make_baseline(recipe, split.train, V, None).score(asked).numpy()
    counted = make_baseline(recipe, split.train, V, None, leave_own_out=False).score(asked).numpy()
    for user, history in enumerate(asked.starts):
        others = make_baseline(recipe, _leave_out(split.train, user), V, None)
        assert history == split.train.starts[user]
        expected = others.score(asked.select(slice(user, user + 1))).numpy()[0]
        np.testing.assert_allclose(scores[user], expected, rtol=1e-9, atol=1e-20)
    assert not np.allclose(scores, counted)


def test_histories_of_another_log_have_nothing_to_leave_out(random_log):
    """The same items in another array are another user's; those of a part of the log are found in the whole."""
    train = leave_one_out(random_log).train
    strange = Histories(train.items.copy(), train.starts, train.ends)
    assert train.find_own(strange).lengths.tolist() == [0] * len(train)
    assert train.find_own(train.cut_newest(2)).lengths.tolist() == train.lengths.tolist()
    some = train.select(np.array([3, 7]))
    assert some.find_own(train).lengths.nonzero()[0].tolist() == [3, 7]
    assert train.select(slice(0, 0)).find_own(train).lengths.tolist() == [0] * len(train)


@pytest.mark.parametrize("most", [1, 2, 4, 99])
def test_rules_beside_a_network_are_those_of_others(random_log, most):
    """The lift of each user is that of rules which are counted, weighed and cut without him."""
    split = leave_one_out(random_log)
    counts = count_rules(split.train, V)
    rules = RulesOfOthers(cut_rules(counts, most), counts, split.train)
    asked = split.test.histories
    item_ids = torch.from_numpy(asked.query_next(max_length=7, mask_index=V + 1).item_ids)
    lifts = rules.lift(asked, item_ids)
    for user in range(len(asked)):
        others = learn_rules(_leave_out(split.train, user), V, most)
        torch.testing.assert_close(lifts[user], others.lift(item_ids[user : user + 1])[0, 1:-1], rtol=1e-6, atol=1e-6)
    assert not torch.allclose(lifts, rules.rules.lift(item_ids)[:, 1:-1])


def test_rules_of_others_are_all_rules_for_a_stranger(random_log):
    """Who was not counted is answered by the very numbers that are served."""
    train = leave_one_out(random_log).train
    counts = count_rules(train, V)
    rules = RulesOfOthers(cut_rules(counts, 3), counts, train)
    strangers = Histories(train.items.copy(), train.starts, train.ends)
    item_ids = torch.from_numpy(strangers.query_next(max_length=7, mask_index=V + 1).item_ids)
    assert torch.equal(rules.lift(strangers, item_ids), rules.rules.lift(item_ids)[:, 1:-1])


REPEATERS, NEWCOMERS = 30, 20
ASKED, WRONG, RIGHT = 61, 62, 63
"""The repeaters have the first 60 items to themselves, two each."""


class KnowsTheNew:
    """A network that gives the right item of a newcomer 1, and everything else 0."""

    network = SimpleNamespace(item_count=RIGHT, config=SimpleNamespace(max_length=8))

    def score(self, histories):
        """Scores (B, V)."""
        new = torch.tensor([history[-1] == ASKED for history in histories])
        scores = torch.zeros(len(histories), RIGHT)
        scores[new, RIGHT - 1] = 1
        return scores


@pytest.fixture
def planted(make_histories):
    """Training histories and questions: 30 users go round two items of their own, and 20 ask what came after ASKED.

    After ASKED ten others met WRONG, which is not what comes. So rules help where the user repeats himself alone, and
    do harm where he does not.
    """
    rounds = [[2 * user + 1, 2 * user + 2, 2 * user + 1] for user in range(REPEATERS)]
    train = make_histories([*rounds, *[[ASKED]] * NEWCOMERS, *[[ASKED, WRONG]] * 10])
    targets = [*(row[1] for row in rounds), *[RIGHT] * NEWCOMERS]
    return train, Questions(train.select(slice(0, REPEATERS + NEWCOMERS)), np.array(targets, dtype=np.int32))


def _try_as_before(rules, questions, *, lift=None):
    """Tries weights with repeated targets kept as candidates, and by all rules unless `lift` is another one."""
    scorer = KnowsTheNew()
    item_ids = torch.from_numpy(questions.histories.query_next(max_length=8, mask_index=RIGHT + 1).item_ids)
    lift = rules.lift(item_ids)[:, 1:-1] if lift is None else lift(questions.histories, item_ids)
    tried = {}
    for weight in RULE_WEIGHTS:
        scores = scorer.score(questions.histories) + weight * lift
        greater, ties, _ = rank_batch(scores, questions, misses_repeated=False)
        tried[Weights(weight)] = float(measure_ranks(greater, ties)["NDCG@10"].mean())
    return tried


def test_planted_repeats_do_not_choose_the_weight_of_rules(planted):
    """All 20 new targets want weight 0, and get it: .4 of NDCG@10, where repeats would have made 0.1 look better."""
    train, questions = planted
    counts = count_rules(train, RIGHT)
    rules = cut_rules(counts, 5)
    scorer: Any = KnowsTheNew()
    tried = try_weights(scorer, questions, rules=RulesOfOthers(rules, counts, train))
    assert choose_weights(tried) == Weights()
    assert tried[Weights()] == pytest.approx(NEWCOMERS / (NEWCOMERS + REPEATERS))
    assert tried[Weights(0.1)] == pytest.approx(0.4 / np.log2(3))
    before = _try_as_before(rules, questions)
    assert choose_weights(before) == Weights(0.1)
    assert before[Weights(0.1)] == pytest.approx(0.6 + 0.4 / np.log2(3))


def test_own_rules_are_left_out_even_where_repeats_are_kept(planted):
    """Each mending stands by itself: with repeated targets as candidates the rules of others choose 0, too."""
    train, questions = planted
    counts = count_rules(train, RIGHT)
    rules = cut_rules(counts, 5)
    by_others = RulesOfOthers(rules, counts, train)
    assert choose_weights(_try_as_before(rules, questions, lift=by_others.lift)) == Weights()


@pytest.mark.parametrize("name", COUNTERS)
def test_planted_rounds_are_known_to_nobody_else(make_log, name):
    """Six users go round two items of their own: counted they are answered rightly, all of them, by others never."""
    log = make_log([[2 * user + 1, 2 * user + 2] * 3 for user in range(6)])
    protocol = PROTOCOLS["P6s"]
    task = build_task(protocol, log, protocol.cut(log, DataRecipe()), 1)
    assert task.questions.repeated.all()
    train, found = leave_one_out(log).train, {}
    for leave_own_out in (True, False):
        baseline = make_baseline(BASELINES[name](name=name), train, 12, None, leave_own_out=leave_own_out)
        found[leave_own_out] = evaluate_task(baseline, task).values["NDCG@10"].max()
    assert found[True] < found[False] == pytest.approx(1.0, abs=0.4)
    assert found[True] == 0


def test_validation_weights_reach_beyond_five():
    """The grid ends where rules decide alone, since most runs chose its end when that was 5."""
    assert max(RULE_WEIGHTS) >= 20
    assert tuple(sorted(RULE_WEIGHTS)) == RULE_WEIGHTS


def test_a_question_is_repeated_where_its_history_holds_the_target(random_log):
    """The same as looking each target up in its history."""
    questions = leave_one_out(random_log).test
    expected = [target in history for target, history in zip(questions.targets, questions.histories, strict=True)]
    assert questions.repeated.tolist() == expected
    assert 0 < sum(expected) < len(expected)
    assert replace(questions, targets=np.zeros_like(questions.targets)).repeated.sum() == 0

"""Full ranking and the baselines, against scores that a person can check."""

import numpy as np
import pytest
import torch

from model.nets.bert4rec import Bert4Rec
from model.nets.configs import Bert4RecConfig
from model.nets.registry import make_network
from training.baselines.chains import Markov, RulesBaseline
from training.baselines.popular import Popularity
from training.data.split import Questions
from training.errors import Diverged
from training.evaluation.metrics import UNLISTED
from training.evaluation.ranking import NetworkScorer, evaluate, rank_targets
from training.publish.rankers import GRAPH_FROM, GraphRanker, ScoreRanker, choose_ranker
from training.publish.recommend_offline import rank_lists


class Fixed:
    """Scores that were written down."""

    def __init__(self, scores):
        self.scores = torch.tensor(scores, dtype=torch.float32)
        self.item_count = self.scores.shape[-1]

    def score(self, histories):
        """The same scores for everyone."""
        return self.scores.repeat(len(histories), 1)


def _rank(scorer, histories, targets, **how):
    ranks = rank_targets(scorer, Questions(histories, np.array(targets, np.int32)), **how)
    return [ranks.greater.tolist(), ranks.ties.tolist()]


def test_seen_items_are_no_candidates(make_histories):
    """Item 3 is third, but first once the better two are seen; ties count only among the unseen."""
    scorer = Fixed([[9, 8, 7, 7, 7]])
    assert _rank(scorer, make_histories([[], [1, 2], [1, 2, 4]]), [3, 3, 3]) == [[2, 0, 0], [2, 2, 1]]


def test_a_target_seen_before_is_removed_or_stays(make_histories):
    """Removed as other seen items are, it is in no list; kept, it has 2 before it, and 1 where all stay."""
    asked = make_histories([[3, 1]])
    assert _rank(Fixed([[9, 8, 7]]), asked, [3]) == [[UNLISTED], [0]]
    assert _rank(Fixed([[9, 8, 7]]), asked, [3], misses_repeated=False) == [[1], [0]]
    assert _rank(Fixed([[9, 8, 7]]), asked, [3], removes_seen=False) == [[2], [0]]


def test_a_constant_scorer_gets_chance_over_101_items(make_histories):
    """101 equal scores: HR@10 = 10/101, wherever the target stands."""
    questions = Questions(make_histories([[]] * 3), np.array([1, 50, 101], np.int32))
    assert evaluate(Fixed([[0.5] * 101]), questions)["HR@10"].tolist() == pytest.approx([10 / 101] * 3)


def test_negatives_are_the_only_rivals(make_histories):
    """Among drawn items only these count, a repeated one twice and the target as a tie with itself."""
    scorer = Fixed([[9, 8, 7, 7, 1]])
    how = {"negatives": np.array([[1, 5], [2, 2], [3, 4]], np.int32), "removes_seen": False}
    assert _rank(scorer, make_histories([[], [], []]), [3, 3, 3], **how) == [[1, 2, 0], [0, 0, 2]]


def test_seen_negatives_are_no_rivals_where_seen_items_are_removed(make_histories):
    """A drawn item of the history scores -inf: it neither beats nor ties; kept, it beats."""
    negatives = np.array([[1, 2]], np.int32)
    for removes_seen, greater in ((True, 1), (False, 2)):
        ranks = _rank(Fixed([[9, 8, 7]]), make_histories([[1]]), [3], negatives=negatives, removes_seen=removes_seen)
        assert ranks == [[greater], [0]]


def test_seen_items_stay_where_a_protocol_keeps_them(make_histories):
    """With removes_seen off the history changes nothing."""
    assert _rank(Fixed([[9, 8, 7]]), make_histories([[1, 2], []]), [3, 3], removes_seen=False) == [[2, 2], [0, 0]]


def test_lists_hold_what_could_be_recommended(make_histories):
    """The best K unseen items, best first, a seen target not among them, 0 where nothing is left."""
    questions = Questions(make_histories([[1], [4, 3], []]), np.array([2, 4, 1], np.int32))
    ranks = rank_targets(Fixed([[1, 9, 8, 7]]), questions, K=3)
    assert ranks.lists.tolist() == [[2, 3, 4], [2, 1, 0], [2, 3, 4]]
    assert rank_targets(Fixed([[1, 9]]), Questions(make_histories([[]]), np.array([1], np.int32)), K=3).lists.shape == (
        1,
        2,
    )


@pytest.mark.parametrize("fault", [float("nan"), float("inf"), float("-inf")])
def test_scores_that_are_no_numbers_are_an_error(make_histories, fault):
    """A NaN would compare false with everything and so rank first; it must not go unnoticed."""
    with pytest.raises(Diverged, match="not a finite number"):
        _rank(Fixed([[1, fault, 2]]), make_histories([[1]]), [3])


def test_questions_keep_their_order_through_batches(make_histories):
    """Evaluation sorts by length inside; ranks come back in the order of the questions."""
    rows = [[1] * (1 + (7 * row) % 300) for row in range(600)]
    targets = 2 + np.arange(600) % 4
    scorer = Fixed([[0, 4, 3, 2, 1]])
    greater, ties = _rank(scorer, make_histories(rows), targets)
    assert greater == (targets - 2).tolist()
    assert not any(ties)


def test_popularity_counts_training_events(make_histories):
    """Scores are the counts, the same for everyone."""
    scores = Popularity(make_histories([[1, 2, 2], [2, 3]]), 4).score(make_histories([[1], []]))
    assert scores.tolist() == [[1, 3, 1, 0]] * 2


def test_markov_counts_what_followed_the_last_item(make_histories):
    """Transitions within users only, popularity deciding below one count, and alone for an empty history."""
    train = make_histories([[1, 2, 1, 2], [2, 3], [4]])
    scores = Markov(train, 4).score(make_histories([[4, 2], [3], [], [1]]))
    popular = np.array([2, 3, 1, 1]) / 8
    expected = popular + np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 2, 0, 0]])
    assert np.allclose(scores.numpy(), expected)


def test_rules_weigh_what_followed_soon(make_histories):
    """1/s for each s places between two items, over the root of a rule's sum; older items of a history count less."""
    train = make_histories([[1, 2, 3], [1, 3], [4], [2, 2]])
    rules = RulesBaseline(train, 4, reach=2, decay=0.5, window=2)
    first = np.array([0, 1, 1.5, 0]) / np.sqrt(2.5)  # 1 -> 2 once, 1 -> 3 at once and after one more
    second = np.array([0, 0, 1, 0])
    scores = rules.score(make_histories([[1, 2], [2, 4, 2], [1, 3], []])).numpy()
    assert np.allclose(scores, [second + first / 2, second, first / 2, np.zeros(4)])


def test_rules_leave_the_rest_to_popularity(make_histories):
    """Items that no rule names follow in the order of their counts, below any that one names."""
    rules = RulesBaseline(make_histories([[1, 2], [3, 4], [3], [3]]), 4)
    assert rules.score(make_histories([[1]])).argsort(descending=True)[0].tolist()[:2] == [1, 2]
    assert rules.score(make_histories([[]])).argmax().item() == 2


def test_rules_are_the_plain_double_loop(make_histories):
    """On random histories, with repeats, the sparse products are what two loops over places give."""
    rng = np.random.default_rng(5)
    train = [rng.integers(1, 9, size=rng.integers(0, 12)).tolist() for _ in range(40)]
    asked = [rng.integers(1, 9, size=rng.integers(1, 9)).tolist() for _ in range(20)]
    weights = np.zeros((9, 8))
    for history in train:
        for place, item in enumerate(history):
            for step, later in enumerate(history[place + 1 : place + 4], start=1):
                weights[item, later - 1] += (later != item) / step
    weights /= np.sqrt(np.maximum(weights.sum(axis=1, keepdims=True), 1))
    expected = [sum(0.7**age * weights[item] for age, item in enumerate(reversed(history[-5:]))) for history in asked]
    scores = RulesBaseline(make_histories(train), 8, reach=3, window=5).score(make_histories(asked))
    assert np.allclose(scores.numpy(), expected)


def test_padding_changes_no_score(make_histories):
    """BERT4Rec scores a history the same alone and beside a longer one."""
    torch.manual_seed(0)
    network = Bert4Rec(Bert4RecConfig(max_length=30, width=16, layers=2, heads=2), 20)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    scorer = NetworkScorer(network)
    short, long = [3, 1, 4], list(range(1, 21)) * 2
    alone = scorer.score(make_histories([short]))
    beside = scorer.score(make_histories([long, short, []]))
    assert torch.allclose(alone[0], beside[1], atol=1e-4)
    assert torch.allclose(scorer.score(make_histories([[]]))[0], beside[2], atol=1e-4)
    assert not torch.allclose(beside[0], beside[1], atol=1e-2)


def test_lists_rank_unseen_items_with_ties_by_id(make_log):
    """Equal scores go by item id even across the cut, seen items never appear, users keep the asked order."""
    log = make_log([[1], [2, 3], [1, 2, 3, 4, 5]], item_count=6)
    told: list[int] = []
    lists = rank_lists(ScoreRanker(Fixed([[1, 1, 5, 1, 1, 1]])), log, np.array([1, 0, 2]), 3, on_users=told.append)
    assert lists.rows() == [
        ("u001", 1, "i01", 1.0),
        ("u001", 2, "i04", 1.0),
        ("u001", 3, "i05", 1.0),
        ("u000", 1, "i03", 5.0),
        ("u000", 2, "i02", 1.0),
        ("u000", 3, "i04", 1.0),
        ("u002", 1, "i06", 1.0),
    ]
    assert sum(told) == 3


@pytest.mark.parametrize("name", ["bert4rec", "sasrec"])
def test_the_graph_ranks_as_sorted_scores_do(make_histories, name):
    """Same items in the same order, scores within 1e-4, for histories of all lengths, longer than the window too."""
    torch.manual_seed(0)
    network = make_network(name, item_count=30, max_length=8, width=16, layers=2, heads=2)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    scorer, draw = NetworkScorer(network.eval()), np.random.default_rng(1)
    histories = make_histories([draw.integers(1, 31, size=size).tolist() for size in [*range(12), 90]])
    scores, items = ScoreRanker(scorer).rank(histories, 10)
    graph = GraphRanker(scorer)
    for k, at_once in ((10, len(histories)), (4, 5)):
        asked = histories.select(slice(0, at_once))
        found, indexes = graph.rank(asked, k)
        real = np.isfinite(scores[:at_once, :k])
        assert (np.isfinite(found) == real).all()
        assert (indexes[real] == items[:at_once, :k][real]).all()
        assert np.allclose(found[real], scores[:at_once, :k][real], atol=1e-4)


def test_only_many_users_are_worth_an_export(make_log):
    """Few users, baselines and networks of users are ranked by their scores."""
    sequence = NetworkScorer(make_network("sasrec", item_count=5, max_length=4, width=8, layers=1, heads=1))
    users = NetworkScorer(
        make_network("bpr-mf", item_count=5, user_count=2, max_length=4, width=8), make_log([[1], [2]]).histories
    )
    assert isinstance(choose_ranker(sequence, GRAPH_FROM), GraphRanker)
    assert isinstance(choose_ranker(sequence, GRAPH_FROM - 1), ScoreRanker)
    assert isinstance(choose_ranker(users, GRAPH_FROM), ScoreRanker)
    assert isinstance(choose_ranker(Fixed([[1] * 5]), GRAPH_FROM), ScoreRanker)

"""Each protocol on a small log whose numbers were worked by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from training.arguments.names import PROTOCOL_NAMES
from training.arguments.parser import make_parser
from training.data.split import split_by_time
from training.errors import DataError, RunError
from training.evaluation.metrics import UNLISTED
from training.evaluation.protocol import PROTOCOLS, build_task, find_fault, find_twin, require_split
from training.evaluation.ranking import evaluate_task
from training.recipe import DataRecipe

WALKS = [[1, 2, 3, 4], [2, 1, 3, 5], [1, 3, 2, 1], [6, 1]]
"""Test items 4, 5 and 1 (seen before); validation items 3, 3 and 2; the last user only trains. Item 7 is nobody's."""

PREFERENCE = [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
"""Scores of items 1 to 7: 1 is best."""


class Fixed:
    """Scores that were written down, for everyone the same."""

    def __init__(self, scores):
        self.scores = torch.tensor(scores, dtype=torch.float64)
        self.item_count = len(scores)

    def score(self, histories):
        """The same scores for everyone."""
        return self.scores.repeat(len(histories), 1)


def _sit(make_log, name, *, scores=PREFERENCE, recipe=None, seed=1, negatives=None, **treatment):
    protocol = PROTOCOLS[name].vary(**treatment)
    log = make_log(WALKS, item_count=7)
    task = build_task(protocol, log, protocol.cut(log, recipe or DataRecipe()), seed)
    return task, evaluate_task(Fixed(scores), task if negatives is None else replace(task, negatives=negatives))


@pytest.fixture
def two_negatives(monkeypatch):
    """Small logs have no 100 items to draw."""
    monkeypatch.setattr("training.evaluation.protocol.NEGATIVES", 2)


def test_every_protocol_has_its_place_on_the_command_line():
    """The names that the parser knows without importing anything are those of the protocols."""
    assert tuple(PROTOCOLS) == tuple(PROTOCOL_NAMES)
    assert all(name == protocol.name for name, protocol in PROTOCOLS.items())


@pytest.mark.parametrize("name", ["P2", "P5"])
def test_full_ranking_without_seen_items(make_log, name):
    """Unseen before 4: none, before 5: 4. The seen 1 is removed, and so in no list: places 1, 2 and none."""
    _, scores = _sit(make_log, name)
    assert (scores.ranks.greater.tolist(), scores.ranks.ties.tolist()) == ([0, 1, UNLISTED], [0, 0, 0])
    assert scores.values["HR@1"].tolist() == [1, 0, 0]
    assert scores.values["NDCG@5"].tolist() == pytest.approx([1, 0.6309297535714575, 0])
    assert scores.values["MRR"].tolist() == [1, 0.5, 0]
    assert scores.ranks.lists[:, :2].tolist() == [[4, 5]] * 3
    assert scores.coverage == pytest.approx(4 / 7)  # 4, 5, 6 and 7: everyone who is asked has seen 1 to 3


def test_full_ranking_with_seen_items(make_log):
    """P6s: items 1 to 3 stand before 4, and 4 before 5; lists show them again."""
    _, scores = _sit(make_log, "P6s")
    assert scores.ranks.greater.tolist() == [3, 4, 0]
    assert scores.ranks.lists[:, 0].tolist() == [1, 1, 1]
    assert scores.coverage == 1


def test_popularity_bias_is_of_the_training_data(make_log):
    """P2 trains on 1 2 | 2 1 | 1 3 | 6 1: counts 4 2 1 0 0 1 0, so items 4, 5 and 7 are less popular than four."""
    task, scores = _sit(make_log, "P2")
    assert task.popularity.tolist() == pytest.approx([1, 5 / 6, 3.5 / 6, 1 / 6, 1 / 6, 3.5 / 6, 1 / 6])
    # the first user is shown 4, 5, 6, 7
    assert scores.values["popularity@10"][0] == pytest.approx((1 / 6 + 1 / 6 + 3.5 / 6 + 1 / 6) / 4)


@pytest.mark.usefixtures("two_negatives")
def test_p1_draws_two_unseen_items(make_log):
    """Unseen by the first user and drawn: 5 and 6 (7 never occurs); both score lower than 4. The second has 4 and 6."""
    task, scores = _sit(make_log, "P1", seed=5)
    assert [sorted(row) for row in task.negatives[:2].tolist()] == [[5, 6], [4, 6]]
    assert set(task.negatives[2].tolist()) <= {4, 5, 6}
    assert scores.ranks.greater.tolist() == [0, 1, 0]


@pytest.mark.usefixtures("two_negatives")
def test_p1a_draws_seen_items_and_removes_them(make_log):
    """Targets 4 and 5 are in no training data, so one question remains; what it draws of 2 and 3 is no rival.

    Its own target was seen, and is removed likewise.
    """
    task, scores = _sit(make_log, "P1a", scores=[1.0, 9, 9, 5, 5, 5, 5])
    assert task.questions.targets.tolist() == [1]
    seen = [_sit(make_log, "P1a", seed=seed)[0].negatives[0].tolist() for seed in range(40)]
    assert any({2, 3} & set(row) for row in seen)
    drawn = np.array([[2, 4]], dtype=np.int32)
    for treatment, greater in (("kept", 1), ("missed", UNLISTED)):
        _, scores = _sit(make_log, "P1a", scores=[1.0, 9, 9, 5, 5, 5, 5], negatives=drawn, repeated_targets=treatment)
        assert (scores.ranks.greater.tolist(), scores.ranks.ties.tolist()) == ([greater], [0])
    _, scores = _sit(make_log, "P1a", scores=[1.0, 9, 9, 5, 5, 5, 5], negatives=drawn)
    assert scores.ranks.greater.tolist() == [UNLISTED]


@pytest.mark.usefixtures("two_negatives")
def test_p7_spares_only_the_training_items(make_log):
    """The validation item 3 and the target itself are drawn, the training items 1 and 2 are not."""
    drawn = np.concatenate([_sit(make_log, "P7", seed=seed)[0].negatives[0] for seed in range(60)])
    assert set(drawn.tolist()) == {3, 4, 5, 6, 7}
    _, scores = _sit(make_log, "P7", negatives=np.array([[3, 4], [5, 5], [2, 4]], np.int32))
    assert (scores.ranks.greater.tolist(), scores.ranks.ties.tolist()) == ([1, 0, 0], [1, 2, 0])


def test_p7_asks_ten_thousand_users_at_most(make_log):
    """10,001 users: all but one are asked, chosen by the seed; 10,000 are all asked."""
    protocol = PROTOCOLS["P7"]
    for users, asked in ((10_000, 10_000), (10_001, 10_000)):
        log = make_log([[1, 2, 3]] * users, item_count=4)
        task = build_task(protocol, log, protocol.cut(log, DataRecipe()), 1)
        assert len(task.questions) == asked
        assert np.all(np.diff(task.questions.histories.starts) > 0)


@pytest.mark.parametrize("name", ["P1", "P1a", "P7"])
def test_a_constant_scorer_gets_chance(make_log, name):
    """101 candidates with equal scores: HR@10 = 10/101, never 1; P1a has fewer rivals by what it drew of the seen."""
    protocol = PROTOCOLS[name]
    log = make_log([[item, item + 1, item + 2] for item in range(1, 400)] * 2, item_count=401)
    task = build_task(protocol, log, protocol.cut(log, DataRecipe()), 1)
    scores = evaluate_task(Fixed([1.0] * 401), task)
    ties = scores.ranks.ties
    assert scores.values["HR@10"].tolist() == pytest.approx((10 / (ties + 1)).tolist())
    if name == "P1a":
        assert 98 <= ties.min() < ties.max() == 100
    else:
        assert ties.tolist() == [100] * len(task.questions)


@pytest.mark.usefixtures("two_negatives")
def test_scores_that_are_no_numbers_are_an_error_under_every_protocol(make_log):
    """A NaN anywhere, even at an item that was not drawn, ends the evaluation."""
    for name in PROTOCOL_NAMES:
        if name != "time":
            with pytest.raises(Exception, match="not a finite number"):
                _sit(make_log, name, scores=[*PREFERENCE[:-1], float("nan")])


def test_small_logs_cannot_be_sampled(make_log):
    """Seven items are no hundred: said, not looped for ever."""
    with pytest.raises(DataError, match="fewer than 100 items"):
        _sit(make_log, "P1")


def test_a_log_that_is_no_core_is_noted_where_published_numbers_are_of_cores(make_log):
    """Five events each, and P5 has nothing to say; one item with four, and it says what to set. P2 asks for no core."""
    core = make_log([[1, 2, 3, 4, 5]] * 5)
    assert find_fault(PROTOCOLS["P5"], core) is None
    less = make_log([[1, 2, 3, 4, 5]] * 4 + [[1, 2, 3, 4, 4]])
    assert "here one has 4: --set data.min_user_events=5" in str(find_fault(PROTOCOLS["P6s"], less))
    assert find_fault(PROTOCOLS["P2"], less) is None


def test_a_core_that_is_asked_under_p2_is_said_to_be_p5(make_log):
    """P2 and P5 ask the same of it; of a log with rarer items P5 asks nothing, and the others are no twins."""
    core = make_log([[1, 2, 3, 4, 5]] * 5)
    assert "P2 on this log equals P5" in str(find_twin(PROTOCOLS["P2"], core))
    assert find_twin(PROTOCOLS["P2"], make_log([[1, 2, 3, 4, 5]] * 4)) is None
    assert {name for name in PROTOCOLS if find_twin(PROTOCOLS[name], core)} == {"P2"}


def test_what_trains_is_the_protocol_s_choice(make_log):
    """P1 gives the validation event back to training; P2 does not, unless the recipe holds out fewer users."""
    log = make_log(WALKS, item_count=7)
    lengths = {name: PROTOCOLS[name].cut(log, DataRecipe()).train.lengths.tolist() for name in ("P1", "P2")}
    assert lengths == {"P1": [3, 3, 3, 2], "P2": [2, 2, 2, 2]}
    split = PROTOCOLS["P2"].cut(log, DataRecipe(held_out_users=1))
    assert sorted(split.train.lengths.tolist()) == [2, 2, 3, 3]
    assert len(split.validation) == 1
    assert len(split.test) == 3


@pytest.fixture
def timed_log(make_log):
    """20 events, one an hour: users a, b and c in turn until 15, then a twice, b, a newcomer d, and c."""
    users = [0, 1, 2] * 5 + [0, 0, 1, 3, 2]
    rows: list[list[int]] = [[] for _ in range(4)]
    times: list[list[int]] = [[] for _ in range(4)]
    for hour, user in enumerate(users):
        rows[user].append(hour % 7 + 1)
        times[user].append(3_600_000 * hour)
    return replace(make_log(rows, item_count=7), timestamps_ms=np.concatenate(times).astype(np.int64))


def test_time_parts_all_users_at_once(timed_log):
    """A fifth of 20 events tests: hours 16 to 19; hours 12 to 15 validate. The newcomer has no history to ask after."""
    split = split_by_time(timed_log, 0.2)
    assert [row.tolist() for row in split.train] == [[1, 4, 7, 3], [2, 5, 1, 4], [3, 6, 2, 5], []]
    assert split.validation.targets.tolist() == [6, 7, 1]  # hours 12, 13 and 14
    assert [row.tolist() for row in split.validation.histories] == [[1, 4, 7, 3], [2, 5, 1, 4], [3, 6, 2, 5]]
    assert split.test.targets.tolist() == [3, 4, 6]  # hours 16, 17 and 19
    assert [row.tolist() for row in split.test.histories] == [[1, 4, 7, 3, 6, 2], [2, 5, 1, 4, 7], [3, 6, 2, 5, 1]]


def test_the_time_protocol_ranks_by_what_was_known(timed_log):
    """User a has seen all but 5, b all but 3 and 6, c all but 4 and 7; the targets 3, 4 and 6 were seen before."""
    for treatment, greater in (("kept", [0, 1, 1]), (None, [UNLISTED] * 3)):
        protocol = PROTOCOLS["time"].vary(repeated_targets=treatment)
        task = build_task(protocol, timed_log, protocol.cut(timed_log, DataRecipe(test_share=0.2)), 1)
        scores = evaluate_task(Fixed(PREFERENCE), task)
        assert scores.ranks.greater.tolist() == greater
    protocol = PROTOCOLS["time"].vary(repeated_targets="dropped")
    with pytest.raises(DataError, match="every target is one"):
        build_task(protocol, timed_log, protocol.cut(timed_log, DataRecipe(test_share=0.2)), 1)


def test_events_of_one_moment_are_not_parted(timed_log):
    """The split falls inside a tie: all of its events are on the later side, and no later event trains."""
    times = timed_log.timestamps_ms.copy()
    times[(times >= 3_600_000 * 10) & (times <= 3_600_000 * 17)] = 3_600_000 * 10
    tied = replace(timed_log, timestamps_ms=times)
    with pytest.raises(DataError, match="too many events share a time"):
        split_by_time(tied, 0.2)
    split = split_by_time(tied, 0.1)
    assert sum(split.train.lengths) == 10


def test_a_log_without_times_cannot_be_parted_by_time(make_log):
    """The message names the key."""
    with pytest.raises(DataError, match=r"data\.timestamp_column"):
        split_by_time(make_log(WALKS), 0.1)


@pytest.mark.parametrize(
    ("trained", "asked", "protocol", "message"),
    [
        ({}, {}, "time", r"data\.split = leave-one-out.*partly in its training data.*data\.split=time"),
        ({"split": "time"}, {"split": "time"}, "P2", r"data\.split = time.*data\.split=leave-one-out"),
        ({"split": "time"}, {"split": "time", "test_share": 0.2}, "time", r"test_share = 0\.1, not 0\.2"),
        ({}, {}, "P7", None),
        ({"held_out_users": 5}, {}, "P1", None),
        ({"split": "time"}, {"split": "time"}, "time", None),
    ],
)
def test_a_run_is_not_asked_for_what_it_was_trained_on(trained, asked, protocol, message):
    """Another split than that of training would leak test events; every leave-one-out protocol tests the same ones."""
    if message is None:
        require_split(PROTOCOLS[protocol], DataRecipe(**trained), DataRecipe(**asked), "RUN")
    else:
        with pytest.raises(RunError, match=message):
            require_split(PROTOCOLS[protocol], DataRecipe(**trained), DataRecipe(**asked), "RUN")


@pytest.mark.parametrize("command", ["evaluate", "compare", "benchmark"])
def test_protocols_are_named_by_code_or_word(command):
    """Options take both and keep the code, which results hold; a name that is neither is refused."""
    option = "--protocols" if command == "benchmark" else "--protocol"
    what = [] if command == "benchmark" else ["pop"]
    for code, name in PROTOCOL_NAMES.items():
        for given in (code, name):
            options = make_parser().parse_args([command, *what, "--data", "log.csv", option, given])
            assert vars(options)[option.removeprefix("--")] == ((code,) if command == "benchmark" else code)
    with pytest.raises(SystemExit):
        make_parser().parse_args([command, *what, "--data", "log.csv", option, "P3"])

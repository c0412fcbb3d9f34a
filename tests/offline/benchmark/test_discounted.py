"""Networks under protocols with popular negatives: the discount is chosen by validation, and is what it says."""

import numpy as np
import pytest
import torch

from training.benchmark.discounted import DISCOUNTS, Discounted, evaluate_discounted, try_discounts
from training.data.histories import Histories
from training.data.split import Questions, count_items
from training.evaluation.protocol import PROTOCOLS, build_task
from training.evaluation.ranking import evaluate_task
from training.recipe import DataRecipe
from training.runs.popularity_discount import take_logs

V = 150


class Likely:
    """Scores that say how likely an item is: its share, and a lift of the items that the history's last one names."""

    item_count = V

    def __init__(self, logs):
        self._logs = logs

    def score(self, histories):
        """The log of each item's share, 2 more for the ten items after the last one of the history (B, V)."""
        last = torch.from_numpy(np.array([int(history[-1]) for history in histories]))
        after = (torch.arange(1, V + 1) - last[:, None]) % V
        return self._logs + 2.0 * ((after >= 1) & (after <= 10))


@pytest.fixture
def sit(make_log):
    """A function: protocol -> the log's evaluation task, split and scorer; users step 1 to 10 items ahead."""
    draw = np.random.default_rng(3)
    weights = 1 / (1 + np.arange(V))
    walks = []
    for _ in range(300):
        walk = [1 + draw.choice(V, p=weights / weights.sum())]
        for _ in range(5):
            ahead = (walk[-1] + np.arange(10)) % V
            walk.append(1 + int(draw.choice(ahead, p=weights[ahead] / weights[ahead].sum())))
        walks.append(walk)
    log = make_log(walks, item_count=V)

    def prepare(name):
        protocol = PROTOCOLS[name]
        split = protocol.cut(log, DataRecipe(held_out_users=200))
        logs = torch.from_numpy(take_logs(count_items(split.train, V)))
        return build_task(protocol, log, split), split, Likely(logs), logs

    return prepare


@pytest.mark.parametrize("name", ["P1", "P1a"])
def test_what_is_likely_anyway_is_taken_off(sit, name):
    """Negatives are drawn by popularity: without popularity in the scores the ten items ahead stand first."""
    task, split, scorer, logs = sit(name)
    found = evaluate_discounted(scorer, task, split)
    assert found
    assert found["by"] > 0
    assert found["tried"][f"{found['by']:g}"] == max(found["tried"].values()) > found["tried"]["0"] + 0.05
    plain, discounted = evaluate_task(scorer, task), evaluate_task(Discounted(scorer, logs, found["by"]), task)
    assert found["metrics"]["NDCG@10"]["value"] == discounted.values["NDCG@10"].mean()
    assert discounted.values["NDCG@10"].mean() > plain.values["NDCG@10"].mean() + 0.05


def test_scores_may_lie_on_another_device(sit):
    """A network on a GPU scores there, and what is taken off goes there: torch's meta device stands for one."""

    class Elsewhere:
        item_count = V

        def score(self, histories):
            return torch.zeros(len(histories), V, device="meta")

    task, _, _, logs = sit("P1")
    scores = Discounted(Elsewhere(), logs, 0.5).score(task.questions.histories)
    assert scores.device.type == "meta"
    assert scores.shape == (len(task.questions), V)


def test_no_test_event_has_a_say(sit):
    """Other targets of the test change its metrics, not what was tried."""
    task, split, scorer, _ = sit("P1")
    found = evaluate_discounted(scorer, task, split)
    other = Questions(task.questions.histories, np.roll(task.questions.targets, 1))
    moved = evaluate_discounted(scorer, type(task)(**{**vars(task), "questions": other}), split)
    assert found
    assert moved
    assert moved["tried"] == found["tried"]
    assert moved["metrics"] != found["metrics"]


@pytest.mark.parametrize("name", ["P2", "P7"])
def test_other_protocols_want_what_is_likely(sit, name):
    """Nothing is discounted where negatives are drawn evenly or all items compete."""
    task, split, scorer, _ = sit(name)
    assert evaluate_discounted(scorer, task, split) is None


def test_discounts_are_tried_on_the_candidates_alone():
    """By hand: a target of score 1 and share 1/8 beside a negative of score 2 and share 1/2, and both shares' logs."""
    logs = torch.log(torch.tensor([0.125, 0.5, 0.375]))

    class Fixed:
        item_count = 3

        def score(self, histories):
            return torch.tensor([[1.0, 2.0, 9.0]]).repeat(len(histories), 1)

    questions = Questions(Histories(np.array([3], np.int32), np.array([0]), np.array([1])), np.array([1], np.int32))
    tried = try_discounts(Fixed(), questions, np.array([[2]], np.int32), logs)
    second, turn = 1 / np.log2(3), 1 / np.log(4)  # the discount that makes both alike is 0.72
    assert tried == pytest.approx({discount: 1.0 if discount > turn else second for discount in DISCOUNTS})

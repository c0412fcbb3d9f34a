"""The judge of reasons (benchmarks/accuracy/explanations.py) sees weights that are wrong and counts what ranks do."""

import asyncio
import math
import random
from typing import Any

import pytest

from benchmarks.accuracy.deletions import BEYOND, Deletion, Deletions, Place
from benchmarks.accuracy.explanations import Questions, check_weights, delete_reasons, read_histories

VALUES = {"a": 3.0, "b": 1.0, "c": 0.5}
"""What each item of a history adds to the score of x; y has the half of it."""


class Model(Questions):
    """Scores that add up, so that each weight is known. `error` is added to the weights that it says."""

    def __init__(self, error=0.0):
        self.error = error

    async def ask(self, items, **_fields):
        total = sum(VALUES[item] for item in items)
        scores = {"x": total, "y": total / 2, "z": 3.0}
        order = sorted(scores, key=lambda name: -scores[name])
        ranked: list[dict[str, Any]] = [
            {"item_id": name, "score": scores[name], "rank": rank} for rank, name in enumerate(order, start=1)
        ]
        for item in ranked:
            share = {"x": 1.0, "y": 0.5, "z": 0.0}[item["item_id"]]
            weights = {one: share * VALUES[one] + self.error for one in dict.fromkeys(items)}
            best = sorted(weights, key=lambda one: -weights[one])[:3]
            item["reasons"] = [{"item_id": one, "weight": weights[one]} for one in best if share]
        return {"items": ranked, "explained": len(items)}


@pytest.mark.parametrize("error", [0.0, 0.25])
def test_a_weight_that_is_no_difference_is_seen(error):
    """By how much it is off."""
    weights, worst = asyncio.run(check_weights(Model(error), [["a", "b", "c"], ["b", "c"]]))
    assert weights == 10
    assert worst == pytest.approx(error, abs=1e-9)


def test_ranks_without_the_first_reason():
    """Without a, x falls behind z; without b or c it does not. y is last whatever happens, but its share says it."""
    found = asyncio.run(delete_reasons(Model(), [["a", "b", "c"]] * 4, random.Random(1)))  # noqa: S311 - repeatable
    assert (found.further, found.less, found.alike) == (4, 0, 4)
    assert found.share == 1.0
    assert all(one.by_share > 0 for one in found)
    [x, y] = found[:2]
    assert (x.whole.rank, x.reason.rank, y.reason.rank) == (1, 2, 3)
    assert y.whole.share == pytest.approx(2.25 - math.log(math.exp(4.5) + math.exp(3.0) + math.exp(2.25)))
    described = found.describe()
    assert "of 8 items 4 fell further" in described
    assert "50.0% of all with ties as misses, 75.0% with ties as halves, 100.0% with ties broken" in described
    assert described.splitlines()[-1] == "  from ranks 3 to 5: 0 further, 4 as far, 0 less"


def test_shares_are_of_those_that_differ():
    """Of three that do, two; nothing is claimed of none. Two that are both too far down to be seen are alike."""
    whole = Place(1, -1.0)
    falls = ((3, 1), (5, 0), (0, 2), (1, 1))
    found = Deletions(Deletion(whole, *(Place(1 + by, -1.0 - by) for by in pair)) for pair in falls)
    assert found.share == pytest.approx(2 / 3)
    assert Deletions().share == 0
    assert (Deletion(whole, BEYOND, BEYOND).by_rank, Deletion(whole, BEYOND, BEYOND).by_share) == (0, 0)


def test_histories_lack_the_last_item(tmp_path):
    """It is what came next; short histories are left out, and so are items that the model does not know."""
    log = tmp_path / "log.txt"
    log.write_text("".join(f"{user} {item}\n" for user, length in ((1, 12), (2, 5)) for item in range(1, length + 1)))
    [history] = read_histories(log, "sasrec-ml-1m", {*map(str, range(2, 20))})
    assert history == [str(item) for item in range(2, 12)]

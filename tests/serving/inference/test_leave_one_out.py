"""Weights of the history's items, against scores without them, one by one."""

from pathlib import Path

import numpy as np
import pytest

from model.contract.query import Answer, Question
from service.inference.leave_one_out import REASONS, ROUNDING, TRIED, leave_each_out
from service.inference.model import load_model

NONE = np.empty(0, dtype=np.int32)


@pytest.fixture(scope="module")
def model():
    """The tiny bundle's."""
    return load_model(Path(__file__).parents[1] / "bundle", provider="cpu", threads=1, max_batch=4)


@pytest.mark.parametrize("seed", range(30))
def test_weights_are_differences_of_scores(model, seed):
    """The full score less the one of a history without any occurrence of the item, older ones moving up."""
    draw = np.random.default_rng(seed)
    history = draw.integers(1, 21, size=draw.integers(1, 30)).astype(np.int32)
    question = Question(history, history if seed % 2 else NONE, None, 6)
    answer = model.rank([question])[0]
    found = model.explain(question, answer)
    newest = list(dict.fromkeys(history[::-1].tolist()))[:TRIED]
    assert found.tried == len(newest)
    named = model.vocabulary.encode(answer.item_ids)
    without = {
        index: model.score([Question(history[history != index], NONE, named, 1)])[0].tolist() for index in newest
    }
    for column, (score, reasons) in enumerate(zip(answer.scores, found.reasons, strict=True)):
        weights = {index: score - scores[column] for index, scores in without.items()}
        best = sorted((weight for weight in weights.values() if weight > ROUNDING), reverse=True)[:REASONS]
        assert [weight for _, weight in reasons] == pytest.approx(best, abs=1e-5)
        for item_id, weight in reasons:
            assert weight == pytest.approx(weights[model.vocabulary.index_of(item_id)], abs=1e-5)


def test_the_newest_items_are_left_out_each_once():
    """Twenty of them, whatever else the history holds, with their events; each is asked at the same time, of all."""
    history = np.array([*range(1, 31), 30, 3, 30], dtype=np.int32)
    events = {"values": np.arange(len(history), dtype=np.float32)}
    asked: list[Question] = []

    def score(questions):
        asked.extend(questions)
        return np.zeros((len(questions), 2), dtype=np.float32)

    question = Question(history, np.array([7], np.int32), None, 2, events, asked_ms=1_763_719_498_000)
    tried, reasons = leave_each_out(question, np.array([7, 9], dtype=np.int32), [0.0, 0.0], score)
    assert (tried, reasons) == (TRIED, [[], []])
    left_out = [*(30, 3), *range(29, 11, -1)]
    for index, one in zip(left_out, asked, strict=True):
        kept = history != index
        assert one.history.tolist() == history[kept].tolist()
        assert one.events is not None
        assert one.events["values"].tolist() == events["values"][kept].tolist()
        assert one.candidates is not None
        assert (one.candidates.tolist(), one.exclude.tolist(), one.asked_ms) == ([7, 9], [], 1_763_719_498_000)


def test_reasons_are_few_heavy_and_in_order():
    """The three weightiest of each item, of equal ones the newest; none that takes away or is mere rounding."""
    history = np.array([1, 2, 3, 4, 5], dtype=np.int32)  # left out from 5 to 1
    without = np.array([[0.5, 1.0], [0.2, 1.00001], [0.5, 0.99995], [3.0, 2.0], [0.9, 1.0]], dtype=np.float32)
    question = Question(history, NONE, None, 2)
    _, reasons = leave_each_out(question, np.array([8, 9], dtype=np.int32), [1.0, 1.0], lambda _: without)
    assert [index for index, _ in reasons[0]] == [4, 5, 3]
    assert [weight for _, weight in reasons[0]] == pytest.approx([0.8, 0.5, 0.5])
    assert reasons[1] == []


def test_an_empty_answer_needs_no_run(model):
    """Where nothing was left to rank there is nothing to explain."""

    def never(_):
        raise AssertionError("it ran")

    question = Question(np.array([1], np.int32), NONE, NONE, 5)
    assert leave_each_out(question, NONE, [], never) == (0, [])
    assert model.explain(question, Answer([], [])) == (0, [])


def test_the_only_item_is_weighed_against_an_empty_history(model):
    """The model is asked with nothing known, as in the golden examples."""
    question = Question(np.array([1, 1], np.int32), NONE, None, 3)
    answer = model.rank([question])[0]
    found = model.explain(question, answer)
    bare = model.score([Question(NONE, NONE, model.vocabulary.encode(answer.item_ids), 1)])[0].tolist()
    assert found.tried == 1
    for score, base, reasons in zip(answer.scores, bare, found.reasons, strict=True):
        wanted = [("i01", pytest.approx(score - base, abs=1e-5))] if score - base > ROUNDING else []
        assert [(item_id, weight) for item_id, weight in reasons] == [
            (model.vocabulary.item_ids[0], weight) for _, weight in wanted
        ]

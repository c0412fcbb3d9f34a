"""When a question is asked: what a network that reads times is told stands at [mask]."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from model.contract.query import Answer, Question, stack_questions
from model.contract.vocabulary import Vocabulary
from service.api.requests import RecommendRequest
from service.judge.scoring import Case, score_cases
from service.ranking.pending import PendingRequest
from service.store.records import History
from service.telemetry.stage_timer import StageTimer

NONE = np.empty(0, dtype=np.int32)


def test_a_request_asks_now_or_at_the_newest_event_that_is_dated_ahead():
    """In epoch milliseconds; a client's clock may be fast, and an event after the question would make no sense."""
    pending = PendingRequest(RecommendRequest(user_id="u"), StageTimer())
    began_ms = time.time_ns() // 1_000_000
    assert began_ms <= pending.asked_ms <= began_ms + 60_000
    pending.history = History(1, ["a"], began_ms - 5_000)
    assert began_ms <= pending.asked_ms <= began_ms + 60_000
    pending.history = History(1, ["a"], began_ms + 86_400_000)
    assert pending.asked_ms == began_ms + 86_400_000


def test_the_time_stands_at_mask_and_nowhere_else():
    """In `times` alone, beside the events' own; 0 where nobody knows, in rows of any length."""
    told = {"times": np.array([5, 6]), "values": np.array([1, 2], np.float32), "types": np.array([1, 1], np.int32)}
    questions = [
        Question(np.array([1, 2], np.int32), NONE, None, 1, told, asked_ms=9),
        Question(np.array([3], np.int32), NONE, None, 1),
        Question(NONE, NONE, None, 1, asked_ms=8),
    ]
    feed = stack_questions(questions, max_length=4, mask_index=7, inputs=("times", "values", "types"))
    assert feed["times"].tolist() == [[5, 6, 9], [0, 0, 0], [0, 0, 8]]
    assert np.isnan(feed["values"][:, -1]).all()
    assert feed["types"][:, -1].tolist() == [0, 0, 0]


def test_the_judge_asks_at_the_time_of_the_event():
    """Later it would ask about another moment than the user chose in."""
    asked: list[Question] = []

    def rank_popular(question):
        asked.append(question)
        return Answer(["a"], [1.0])

    model: Any = SimpleNamespace(
        vocabulary=Vocabulary(["a"]), reads_events=True, event_types=(), rank_popular=rank_popular
    )
    [score] = score_cases(model, [Case("a", History(1, [], None), 1_763_719_498_000)])
    assert (score.rank, [question.asked_ms for question in asked]) == (1, [1_763_719_498_000])

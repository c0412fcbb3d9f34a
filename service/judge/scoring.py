"""Where a model would have ranked the item of a live event, by the service's own code."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from model.contract.deployment.live_sums import CUTOFF, Series, Sums
from model.contract.query import Answer, Question, encode_question
from service.inference.model import LiveModel
from service.store.records import History

RANKED: Final = 100
"""Length of the lists in which items are looked for."""


class JudgedModel(NamedTuple):
    """A model, and what it is in the deployment."""

    series: Series
    model: LiveModel


class Case(NamedTuple):
    """An event that a model is asked about: what the user chose, the history before it, and when."""

    item_id: str
    history: History
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Score:
    """What one model made of a case."""

    rank: int | None
    """The item's rank from 1 on; None beyond RANKED, and for an item that the model does not know."""
    unknown: bool
    top: tuple[str, ...]
    """The first CUTOFF of the list."""
    known_items: int
    """How many of the history's items the model knows."""
    history_items: int

    @property
    def ndcg(self) -> float:
        """NDCG@10 of one relevant item: 1 / log2(1 + rank)."""
        return 0.0 if self.rank is None or self.rank > CUTOFF else 1 / math.log2(1 + self.rank)

    def to_sums(self) -> Sums:
        """Its gains, as sums over one trial."""
        return Sums(
            trials=1,
            hits=self.rank is not None and self.rank <= CUTOFF,
            ndcg=self.ndcg,
            mrr=0.0 if self.rank is None else 1 / self.rank,
            unknown=self.unknown,
        )


def score_cases(model: LiveModel, cases: Sequence[Case]) -> list[Score]:
    """Rank each case's item among all that the user has not met. Raises EngineUnavailable.

    Without a known item in the history the popular list counts: it is what the service would have answered.
    """
    questions = [_ask(model, case) for case in cases]
    warm = [question for question in questions if len(question.history)]
    ranked = iter(model.rank(warm) if warm else ())
    answers = [next(ranked) if len(question.history) else model.rank_popular(question) for question in questions]
    return [_score(model, *each) for each in zip(cases, questions, answers, strict=True)]


def _ask(model: LiveModel, case: Case) -> Question:
    history = case.history
    return encode_question(
        model.vocabulary,
        history=history.item_ids,
        exclude=(),
        candidates=None,
        k=RANKED,
        exclude_history=True,
        events=history.events if model.reads_events else None,
        event_types=model.event_types,
        asked_ms=case.timestamp_ms,
    )


def _score(model: LiveModel, case: Case, question: Question, answer: Answer) -> Score:
    ranked = answer.item_ids
    return Score(
        rank=ranked.index(case.item_id) + 1 if case.item_id in ranked else None,
        unknown=case.item_id not in model.vocabulary,
        top=tuple(ranked[:CUTOFF]),
        known_items=len(question.history),
        history_items=len(case.history.item_ids),
    )

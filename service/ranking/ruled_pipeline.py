"""Ranks requests with business rules. They may take several runs each, so they share no batch with others."""

from collections.abc import Sequence

from model.contract.query import Question
from service.business_rules.arrangement import Arrangement
from service.errors import EngineUnavailable
from service.inference.model import LiveModel
from service.ranking.pending import PendingRequest, start_stage
from service.ranking.pipeline import Pipeline
from service.ranking.rules import arrange, check_published

_Asked = tuple[PendingRequest, Arrangement, list[Question]]


class RuledPipeline(Pipeline):
    """A pipeline for requests with rules: each round is one run for all that still need one."""

    async def _rank(self, model: LiveModel, batch: Sequence[PendingRequest]) -> None:
        for pending in batch:
            check_published(model, pending)
        waiting = [
            (pending, arrange(model, pending, pending.question))
            for pending in batch
            if pending.failure is None and pending.question and len(pending.question.history)
        ]
        while waiting:
            asked = [(pending, arrangement, arrangement.ask()) for pending, arrangement in waiting]
            try:
                begun = await self._rank_round(model, batch, asked)
            except EngineUnavailable:
                for pending, _ in waiting:
                    pending.degraded = "engine_unavailable"
                return
            for pending, arrangement in begun:
                if arrangement.complete:
                    pending.ranking = arrangement.finish()
            waiting = [(pending, arrangement) for pending, arrangement in begun if not arrangement.complete]

    async def _rank_round(
        self, model: LiveModel, batch: Sequence[PendingRequest], asked: Sequence[_Asked]
    ) -> list[tuple[PendingRequest, Arrangement]]:
        """Ask the model in one run. Returns those who still waited when it began. Raises EngineUnavailable."""
        begun: list[_Asked] = []

        def choose() -> list[Question]:
            start_stage(batch, "inference")
            begun.extend(one for one in asked if one[0].wanted)
            return [question for _, _, questions in begun for question in questions]

        most = sum(len(questions) for _, _, questions in asked)
        answers = iter(await self._runner.rank(model, choose, most=most))
        for _, arrangement, questions in begun:
            arrangement.take([next(answers) for _ in questions])
        return [(pending, arrangement) for pending, arrangement, _ in begun]

"""Watches a model at work: counts its runs for the trial, and takes a candidate that fails out of use."""

from service.inference.runner import EngineRunner
from service.ranking.role import Role
from service.recommend.first_runs import FirstRuns
from service.recommend.variant_breaker import VariantBreaker
from service.store.variant_counts import VariantTally
from service.telemetry.metrics import Metrics


class Monitor:
    """Of one variant. It is told of every run, and of requests that the variant did not answer for other reasons."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._role: Role | None = None
        self._tally: VariantTally | None = None
        self._champion: EngineRunner | None = None
        """The runner that a candidate is compared with; None for the champion."""
        self._breaker = VariantBreaker()
        self.first_runs = FirstRuns()
        """Those of a champion that was swapped in."""

    @property
    def out_of_use(self) -> bool:
        """Whether the champion answers instead for a while."""
        return self._champion is not None and self._breaker.open

    def assume(self, role: Role, tally: VariantTally | None, champion: EngineRunner | None) -> None:
        """Count for this role from now on; without a tally, not at all."""
        self._role, self._tally, self._champion = role, tally, champion

    def end(self) -> None:
        """Count nothing against the candidate from now on: it is closed, and answers no more, whoever still asks."""
        self._champion = None

    def ran(self, questions: int, seconds: float | None) -> None:
        """Count a run: its seconds, None for a failed one."""
        role = None if self._role is None else self._role.name
        if self._tally is not None and role is not None and role != "comparison" and seconds is not None:
            self._tally.add_run(role, seconds)
        if self._champion is None:
            self.first_runs.record(failed=seconds is None)
        else:
            expected_s = self._champion.predict_s(questions)
            self._note(opened=self._breaker.record_run(seconds, champion_s=expected_s))

    def missed(self) -> None:
        """Count a request that the variant did not answer in time, or at all."""
        if self._champion is not None:
            self._note(opened=self._breaker.record(bad=True))

    def _note(self, *, opened: bool) -> None:
        if opened:
            self._metrics.model.breaker_opened()
            if self._tally is not None:
                self._tally.add("candidate", "breakers_opened")

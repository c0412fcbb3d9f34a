"""What else is learnt from the events that the judge reads."""

from model.contract.deployment.live_sums import LiveScores
from service.judge.events import LoggedEvent
from service.judge.scoring import JudgedModel, Score


class Observer:
    """Is told of everything that the judge does, in its order. The methods here do nothing."""

    def accepted(self, event: LoggedEvent) -> None:
        """An event was counted, as a trial or as skipped."""

    def ran(self, judged: JudgedModel, seconds_per_case: float) -> None:
        """A model ranked a batch."""

    def scored(self, event: LoggedEvent, champion: Score, candidate: Score | None) -> None:
        """An event became a trial."""

    def decide(self, now_ms: float) -> None:
        """A step is done: act on what was learnt. `now_ms` is the store's time."""

    def keep_state(self, scores: LiveScores) -> None:
        """Put what must outlive the judge into the scores, which are written next."""

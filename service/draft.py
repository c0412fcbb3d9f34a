"""One answer while it is made, and how long it may still take."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from model.contract.question import Answer, Question
from service.answers import Degraded
from service.history import History
from service.schemas import RecommendRequest
from service.stopwatch import Stage, Stopwatch

RESERVE_S = 0.01
RESERVE_SHARE = 0.1
"""The end of a request's time, kept for writing the answer down: so many seconds, but no more than this part of it."""


@dataclass(slots=True)
class Draft:
    """A question on its way through the stages. Times are those of time.perf_counter."""

    ask: RecommendRequest
    stopwatch: Stopwatch
    history: History | None = None
    question: Question | None = None
    ranking: Answer | None = None
    degraded: Degraded | None = None
    failure: Exception | None = None
    stage: Stage = "queue"
    """Where the time goes now."""
    abandoned: bool = False
    """Whether nobody waits for it any more: the client left, or was answered otherwise."""
    expires_s: float = field(init=False)
    """When work on it must end."""

    def __post_init__(self) -> None:
        whole_s = self.ask.timeout_ms / 1000
        self.expires_s = self.stopwatch.started + whole_s - min(RESERVE_S, RESERVE_SHARE * whole_s)

    @property
    def left_s(self) -> float:
        """Seconds until it expires, negative afterwards."""
        return self.expires_s - time.perf_counter()

    @property
    def wanted(self) -> bool:
        """Whether it is worth working on."""
        return not self.abandoned and self.left_s > 0


def enter(drafts: Sequence[Draft], stage: Stage) -> None:
    """A stage begins for all of a batch: its work is part of the time of each request in it."""
    for draft in drafts:
        if not draft.abandoned:
            draft.stopwatch.lap(draft.stage)
            draft.stage = stage

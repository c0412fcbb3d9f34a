"""A request in progress, and the time that it has left."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from model.contract.allowed import Allowed
from model.contract.query import Answer, Question
from service.api.requests import RecommendRequest
from service.api.responses import Degraded, Source
from service.business_rules.boosts import BoostedSet
from service.catalogue.live import CatalogueView
from service.inference.model import LiveModel
from service.store.records import History
from service.telemetry.stage_timer import Stage, StageTimer

RESERVE_S = 0.01
RESERVE_SHARE = 0.1
"""Time reserved for writing the answer: RESERVE_S, but at most this share of the request's time limit."""


@dataclass(slots=True)
class PendingRequest:
    """A request on its way through the stages. Times are those of time.perf_counter, in seconds."""

    request: RecommendRequest
    timer: StageTimer
    patience: float = 1.0
    """Share of the time left now that the work on it may take; the rest is for somebody else's answer."""
    history: History | None = None
    allowed: Allowed | None = None
    """The items that it may be answered with, if not all of them."""
    boosted: Sequence[BoostedSet] = ()
    """The same by boost, where it has boosts. Known once there is a question."""
    catalogue: CatalogueView | None = None
    """None while no item was ever changed."""
    question: Question | None = None
    ranking: Answer | None = None
    ranked_by: Source = "model"
    """What made `ranking`."""
    degraded: Degraded | None = None
    failure: Exception | None = None
    stage: Stage = "queue"
    """The current stage."""
    abandoned: bool = False
    """Whether nobody waits for it: the client disconnected or has been answered."""
    expires_s: float = field(init=False)
    """The deadline of the work on it."""

    def __post_init__(self) -> None:
        whole_s = self.request.timeout_ms / 1000
        self.expires_s = self.timer.started + whole_s - min(RESERVE_S, RESERVE_SHARE * whole_s)
        if self.patience < 1:
            self.expires_s -= (1 - self.patience) * self.left_s

    def find_metadata(self, model: LiveModel, item_id: str) -> bytes:
        """What its answer says of an item of a model, by the catalogue or else by the bundle: a JSON object."""
        known = model.find_metadata(item_id)
        if self.catalogue is None:
            return known
        return self.catalogue.overlay.find_metadata(item_id, known) or b"{}"

    @property
    def left_s(self) -> float:
        """Seconds until it expires, negative afterwards."""
        return self.expires_s - time.perf_counter()

    @property
    def asked_ms(self) -> int:
        """Now in epoch milliseconds, or the time of the newest event, which clients may date ahead."""
        newest_ms = self.history.last_event_at_ms if self.history else None
        return max(time.time_ns() // 1_000_000, newest_ms or 0)

    @property
    def wanted(self) -> bool:
        """Whether it is worth working on."""
        return not self.abandoned and self.left_s > 0


def start_stage(batch: Sequence[PendingRequest], stage: Stage) -> None:
    """Start a stage for a whole batch. Its duration counts for each request of the batch."""
    now = time.perf_counter()
    for pending in batch:
        if not pending.abandoned:
            pending.timer.record(pending.stage, now)
            pending.stage = stage

"""Response schemas of the routes for who looks after the service, as typed dictionaries like those of responses.py."""

from typing import Literal

from typing_extensions import TypedDict

from model.contract.deployment.document import VariantName
from service.api.model_responses import RefusedModel


class WorkerDescription(TypedDict):
    """What one worker serves, as it told the store at `reported_at`.

    `breaker_open`: the candidate is loaded, but out of use for a minute, since it fails or is slow.
    """

    worker: str
    generation: int
    champion: str
    candidate: str | None
    breaker_open: bool
    refused: RefusedModel | None
    reported_at: str


class WorkersDescription(TypedDict):
    """How many workers this service should have, and how many of them do not serve.

    `reporting`: all that report to the store, those of other services that share it, too; null while it is away.
    """

    configured: int
    missing: int
    reporting: list[WorkerDescription] | None


class ArchiveDescription(TypedDict):
    """The log and the archiver. `failed_runs` counts since the last success; times are null where there was none."""

    log_length: int
    last_success_at: str | None
    failed_runs: int
    erasures_pending: int
    oldest_erasure_at: str | None


class StoreDescription(TypedDict):
    """The store. `memory_limit_bytes` is null without a limit, `clock_skew_s` and `archive` where they are unknown."""

    durable: bool
    memory_bytes: int
    memory_limit_bytes: int | None
    lost_events: int
    clock_skew_s: float | None
    archive: ArchiveDescription | None


class ProblemRow(TypedDict):
    """Alike problems within a minute: `count` of them between `since` and `at`; `request_id` is the last one's.

    `code` is the status that clients got: 200 for a degraded answer, whose `reason` is that of `degraded`.
    """

    at: str
    since: str
    route: str
    code: int
    reason: str
    count: int
    request_id: str


class ServiceStatus(TypedDict):
    """The answer of GET /status: readiness as GET /health/ready has it, workers, store, and the last problems.

    `store` is null while it does not answer. `problems` are the last 100 of all workers, the newest first.
    """

    status: Literal["ok", "degraded", "draining", "starting"]
    reasons: list[str]
    workers: WorkersDescription
    store: StoreDescription | None
    problems: list[ProblemRow]
    took_ms: float


class RecentUser(TypedDict):
    """A user, and when the newest of its events was accepted."""

    user_id: str
    last_event_at: str


class RecentUsers(TypedDict):
    """The answer of GET /users: users of the newest events in the log, the newest first."""

    users: list[RecentUser]
    count: int
    took_ms: float


class LiveScore(TypedDict):
    """What the judge measured of a version, as champion or as candidate. Means over `trials`; null without any."""

    version: str
    variant: VariantName
    trials: int
    hr_at_10: float | None
    ndcg_at_10: float | None
    offline_ndcg_at_10: float | None


class JudgeDescription(TypedDict):
    """The judge: when it wrote its scores, the age of the oldest event that waits, versions that it cannot load."""

    at: str
    lag_s: float
    refused: list[str]
    verdicts: dict[str, int]


class Difference(TypedDict):
    """NDCG@10 of the candidate less the champion's: the mean, and the ends of its interval."""

    mean: float
    low: float
    high: float


class TrialDescription(TypedDict):
    """The candidate's trial. An `evidence_...` of at least `proof` decides; `min_trials` pairs come before that."""

    candidate: str
    champion: str
    began_at: str
    pairs: int
    min_trials: int
    difference: Difference | None
    evidence_better: float
    evidence_worse: float
    proof: float


class JournalLine(TypedDict):
    """One change of the deployment: `to` names what it changed."""

    at: str
    generation: int
    by: str
    action: str
    to: str
    why: str


class TrialReport(TypedDict):
    """The answer of GET /models/trial. `judge` is null where nothing was scored yet, `trial` without evidence.

    `journal`: the last changes, the newest first; null where it cannot be read.
    """

    live: list[LiveScore]
    judge: JudgeDescription | None
    trial: TrialDescription | None
    journal: list[JournalLine] | None

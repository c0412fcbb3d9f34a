"""What an operator wants to see at once: readiness, workers, store and the last problems, for GET /status."""

import asyncio
from collections.abc import Callable
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from service.api.model_responses import RefusedModel
from service.api.operator_responses import (
    ArchiveDescription,
    ProblemRow,
    ServiceStatus,
    StoreDescription,
    WorkerDescription,
    WorkersDescription,
)
from service.api.timestamps import format_rfc_3339
from service.errors import StoreUnavailable
from service.health import Health
from service.store.archive_status import ArchiveState
from service.store.probe import ThrottledProbe
from service.store.status import StoreState
from service.store.worker_states import WorkerState, read_worker_states
from service.store_monitor import StoreMonitor
from service.telemetry.problems import NotedProblem, ProblemLog

READ_EVERY_S: Final = 1.0
"""However often it is asked, it reads the workers' states and problem files so often at most."""
WORKERS_TIMEOUT_S: Final = 0.5


class StatusBoard:
    """Puts the status together from what the parts of the service know."""

    def __init__(
        self,
        client: Redis,
        *,
        configured: int,
        workers_missing: Callable[[], int],
        health: Health,
        store_monitor: StoreMonitor,
        problems: ProblemLog,
    ) -> None:
        """`configured` workers should serve; `workers_missing` tells how many of them do not."""
        self._client = client
        self._configured = configured
        self._workers_missing = workers_missing
        self._health = health
        self._store_monitor = store_monitor
        self._workers = ThrottledProbe(self._read_workers, every_s=READ_EVERY_S)
        self._problems = ThrottledProbe(problems.read, every_s=READ_EVERY_S)

    async def report(self, took_ms: Callable[[], float]) -> ServiceStatus:
        """The status now. `took_ms` tells at the end how long it took. Answers while the store does not, too."""
        (_, readiness), state, workers, problems = await asyncio.gather(
            self._health.report(), self._store_monitor.refresh(), self._workers.ask(), self._problems.ask()
        )
        return ServiceStatus(
            status=readiness["status"],
            reasons=readiness["reasons"],
            workers=WorkersDescription(
                configured=self._configured,
                missing=self._workers_missing(),
                reporting=None if workers is None else [_describe_worker(worker) for worker in workers],
            ),
            store=None if state is None else _describe_store(state),
            problems=[_describe_problem(problem) for problem in problems or ()],
            took_ms=took_ms(),
        )

    async def _read_workers(self) -> list[WorkerState]:
        try:
            async with asyncio.timeout(WORKERS_TIMEOUT_S):
                return await read_worker_states(self._client)
        except (RedisError, OSError) as error:
            raise StoreUnavailable from error


def _describe_worker(worker: WorkerState) -> WorkerDescription:
    refused = worker.refused
    return WorkerDescription(
        worker=worker.worker,
        generation=worker.generation,
        champion=worker.champion,
        candidate=worker.candidate,
        breaker_open=worker.breaker_open,
        refused=None
        if refused is None
        else RefusedModel(version=refused.version, code=refused.code, since=refused.since),
        reported_at=format_rfc_3339(worker.at_ms),
    )


def _describe_store(state: StoreState) -> StoreDescription:
    return StoreDescription(
        durable=state.durable,
        memory_bytes=state.memory_bytes,
        memory_limit_bytes=state.memory_limit_bytes or None,
        lost_events=state.lost_events,
        clock_skew_s=state.clock_skew_s,
        archive=None if state.archive is None else _describe_archive(state.archive),
    )


def _describe_archive(archive: ArchiveState) -> ArchiveDescription:
    return ArchiveDescription(
        log_length=archive.pending_events,
        last_success_at=_format_s(archive.last_success_s),
        failed_runs=sum(archive.failed_runs.values()),
        erasures_pending=archive.erasures_pending,
        oldest_erasure_at=_format_s(archive.oldest_erasure_s),
    )


def _format_s(seconds: float) -> str | None:
    """A time in seconds since 1970; None for 0, which stands for none."""
    return format_rfc_3339(int(seconds * 1000)) if seconds else None


def _describe_problem(problem: NotedProblem) -> ProblemRow:
    return ProblemRow(
        at=format_rfc_3339(problem.last_ms),
        since=format_rfc_3339(problem.first_ms),
        route=problem.route,
        code=problem.code,
        reason=problem.reason,
        count=problem.count,
        request_id=problem.request_id,
    )

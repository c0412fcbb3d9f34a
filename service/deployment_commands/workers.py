"""What the workers say that they serve, as far as their store can be reached; and waiting until all have followed."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from redis.exceptions import RedisError

from model.contract.deployment.document import Deployment, DeploymentError, read_deployment
from model.contract.manifest import BundleError
from service.embedded.data_folder import find_socket
from service.errors import StartFailed
from service.store.connection import connect
from service.store.worker_states import WorkerState, read_worker_states

CALL_S = 1.5
POLL_S = 0.3
PATIENCE_S = 1.0
"""How long the store may not answer, or nobody report, before a change that was made goes without waiting.

A rollback must not take long while the store is down.
"""

Outcome = Literal["followed", "refused", "late", "unseen", "nobody"]


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """Where the workers' states are: a store of the operator's own, or the embedded one of a data folder."""

    redis_url: str | None
    password_file: Path | None
    data_dir: Path


@dataclass(frozen=True)
class Sight:
    """The workers that report. `fault` says why they cannot be seen; then there are none."""

    workers: Sequence[WorkerState]
    """Those of the bundle folder that was asked about."""
    fault: str | None = None
    others: Sequence[WorkerState] = ()
    """Those of other bundle folders that share the store, and of single bundles."""

    def find_refusals(self, deployment: Deployment) -> list[WorkerState]:
        """The workers that refused a version which the deployment names now."""
        named = (deployment.champion, deployment.candidate)
        return [worker for worker in self.workers if worker.refused and worker.refused.version in named]

    def count_on(self, version: str) -> int:
        """How many workers serve a version, as champion or as candidate."""
        return sum(version in (worker.champion, worker.candidate) for worker in self.workers)


def see_workers(address: StoreAddress, folder_ids: Collection[str]) -> Sight:
    """Ask the store for the workers of a bundle folder, by the ids that it has, or had before its first change.

    Never raises for a store that is away: the commands work without it.
    """

    async def ask() -> list[WorkerState]:
        url = address.redis_url or f"unix://{find_socket(address.data_dir)}"
        client = connect(url, password_file=address.password_file)
        try:
            async with asyncio.timeout(CALL_S):
                return await read_worker_states(client)
        finally:
            await client.aclose()

    try:
        states = asyncio.run(ask())
    except StartFailed as error:
        return Sight((), str(error))
    except (RedisError, OSError):
        return Sight((), "the store does not answer")
    of_folder = [state for state in states if state.folder_id in folder_ids]
    return Sight(of_folder, others=[state for state in states if state.folder_id not in folder_ids])


def wait_for_workers(
    root: Path,
    deployment: Deployment,
    see: Callable[[Collection[str]], Sight],
    *,
    timeout_s: float,
    before: Deployment | None = None,
) -> tuple[Outcome, Sight]:
    """Wait until every worker that reports is on the deployment, or on a later one. `see` is see_workers at a store.

    After a change (`before` is what stood) a refusal counts once its worker has reported anew, and a store that does
    not answer, or that nobody reports to, is waited for PATIENCE_S only. Otherwise all of it is waited for until
    `timeout_s`.
    """
    began_s, changed = time.monotonic(), before is not None
    folder_ids = {one.folder_id for one in (before, deployment) if one is not None}
    first = see(folder_ids)
    reported_ms = {worker.worker: worker.at_ms for worker in first.workers} if changed else {}
    sight = first
    while True:
        deployment = _read_newest(root, deployment)
        folder_ids.add(deployment.folder_id)
        refusals = sight.find_refusals(deployment)
        if any(worker.at_ms > reported_ms.get(worker.worker, -1) for worker in refusals):
            return "refused", sight
        if sight.workers and all(worker.generation >= deployment.generation for worker in sight.workers):
            return "followed", sight
        waited_s = time.monotonic() - began_s
        if waited_s > (min(PATIENCE_S, timeout_s) if changed and not sight.workers else timeout_s):
            break
        time.sleep(POLL_S)
        sight = see(folder_ids)
    if sight.fault is not None:
        return "unseen", sight
    return ("late" if sight.workers else "nobody"), sight


def _read_newest(root: Path, known: Deployment) -> Deployment:
    """The deployment that stands now; whoever changed it meanwhile is waited for, too."""
    try:
        now = read_deployment(root)
    except (BundleError, DeploymentError):
        return known
    return now if now.generation > known.generation else known

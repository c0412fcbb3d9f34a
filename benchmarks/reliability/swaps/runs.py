"""One run: a service under load whose champion is changed over and over, or not at all, as a control."""

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import httpx

from benchmarks.harness.bundles import seal
from benchmarks.harness.load_process import firing
from benchmarks.harness.open_loop import Outcome
from benchmarks.harness.processes import ServiceProcess
from benchmarks.reliability.soak.memory import sample
from benchmarks.reliability.swaps.damage import Damage
from benchmarks.reliability.swaps.traffic import VERSIONS, copy_version, find_mixture, make_root, mix
from model.contract.atomic_files import write_whole
from model.contract.deployment.changes import use
from model.contract.deployment.document import DEPLOYMENT, Deployment, read_deployment
from model.contract.deployment.writer import change_deployment
from service.embedded.server import EmbeddedStore

PATIENCE_S: Final = 60.0
WARM_UP_S: Final = 1.0
"""Until caches are warm and connections open. Answers to questions of this time must be right, but may be slow."""
PAUSE_S: Final = 0.5
"""Between two swaps."""
_LOOK_S: Final = 0.05


class Serving(Protocol):
    """A service that runs, as far as a run needs to know it."""

    url: str

    @property
    def process_id(self) -> int:
        """The process that answers, or the supervisor of those that do."""


@dataclass
class Run:
    """What a run showed."""

    outcomes: list[Outcome] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    """From each command to its use by all workers."""
    resident_mib: list[float] = field(default_factory=list)
    """After each change, of the largest worker."""
    refused: list[str] = field(default_factory=list)
    """The code of each refusal."""
    metrics: dict[str, float] = field(default_factory=dict)
    """At the end."""

    @property
    def bad(self) -> list[Outcome]:
        """Answers that are not whole, right and 200."""
        return [outcome for outcome in self.outcomes if outcome.status != 200 or outcome.degraded or outcome.fault]


@asynccontextmanager
async def serving(folder: Path, *, workers: int) -> AsyncIterator[tuple[ServiceProcess, Path]]:
    """A service over a bundle folder and a store of its own."""
    root = make_root(folder / "bundles")
    with EmbeddedStore(folder / "data") as store:
        options = ("--workers", str(workers), "--drain-delay-s", "0", "--follow-s", "0.2")
        service = ServiceProcess(store.url, root, folder / "service.log", *options)
        await service.start()
        try:
            yield service, root
        finally:
            await service.stop()


async def under_load(
    service: Serving, act: Callable[[httpx.AsyncClient, Run], Awaitable[None]], *, asks: float, sends: float
) -> Run:
    """Ask and send, from a process of its own, while something is done; what came of both."""
    run, url = Run(), urlsplit(service.url)
    limits = httpx.Limits(max_keepalive_connections=0)  # each question may meet another worker
    async with httpx.AsyncClient(base_url=service.url, limits=limits, timeout=30) as http:
        load = firing(str(url.hostname), url.port or 0, partial(mix, asks=asks, sends=sends), find_mixture)
        async with load as run.outcomes:
            await asyncio.sleep(WARM_UP_S)
            await act(http, run)
            run.metrics = await read_metrics(http)
    return run


async def swap_times(http: httpx.AsyncClient, run: Run, *, root: Path, service: Serving, times: int) -> None:
    """Make the other version the champion, so many times, and wait each time until all workers serve it."""
    workers = list_workers(service.process_id)
    for number in range(times):
        version = VERSIONS[(number + 1) % 2]
        began_s = time.monotonic()
        deployment = await change(root, version)
        await await_that(partial(_serves, http, deployment.generation))
        run.took_s.append(time.monotonic() - began_s)
        run.resident_mib.append(_read_largest(workers))
        await asyncio.sleep(PAUSE_S)


async def look_times(http: httpx.AsyncClient, run: Run, *, service: Serving, took_s: Sequence[float]) -> None:
    """The control: look at the service as often and as long as `swap_times` did, and change nothing."""
    workers = list_workers(service.process_id)
    for seconds in took_s:
        run.took_s.append(seconds)
        await await_that(partial(_passed, http, time.monotonic() + seconds))
        run.resident_mib.append(_read_largest(workers))
        await asyncio.sleep(PAUSE_S)


async def corrupt_times(
    http: httpx.AsyncClient, run: Run, *, root: Path, times: int, good_every: int, damages: Sequence[Damage]
) -> None:
    """Name damaged versions champion of the running service; after every `good_every`-th a good one."""
    draw = random.Random(17)  # noqa: S311 - the same damages each time
    good = 0
    for number in range(times):
        name = f"damaged-{number}"
        folder = copy_version(root, VERSIONS[number % 2], f".{name}")
        seal(folder, version=name)
        folder = folder.rename(root / name)
        damages[number % len(damages)](folder, draw)
        _name_by_hand(root, name)
        await await_that(partial(_refuses, http, run, name))
        if (number + 1) % good_every == 0:
            good += 1
            began_s = time.monotonic()
            deployment = await change(root, VERSIONS[good % 2])
            await await_that(partial(_serves, http, deployment.generation))
            run.took_s.append(time.monotonic() - began_s)
        shutil.rmtree(folder)


def _name_by_hand(root: Path, version: str) -> None:
    """Name a version champion as somebody would who writes the file himself: no command has looked at it."""
    wanted = use(version, why="by hand")(read_deployment(root))
    write_whole(root / DEPLOYMENT, replace(wanted, generation=wanted.generation + 1).to_bytes())


async def change(root: Path, version: str) -> Deployment:
    """Make a version the champion, as `nextitem-serve models use --force` does: it knows no item of the other's."""
    return await asyncio.to_thread(
        change_deployment, root, use(version, why="a benchmark"), action="use", by="cli:benchmark", force=True
    )


async def _serves(http: httpx.AsyncClient, generation: int) -> bool:
    return (await read_metrics(http)).get("nextitem_deployment_generation") == generation


async def _passed(http: httpx.AsyncClient, until_s: float) -> bool:
    await read_metrics(http)
    return time.monotonic() >= until_s


def _read_largest(workers: Sequence[int]) -> float:
    return max(sample(pid, at_s=0.0).resident_mib for pid in workers)


async def _refuses(http: httpx.AsyncClient, run: Run, version: str) -> bool:
    model = (await http.get("/model")).json()
    if model["refused"] is None or model["refused"]["version"] != version:
        return False
    run.refused.append(model["refused"]["code"])
    return True


async def await_that(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - another process tells nobody
            await asyncio.sleep(_LOOK_S)


async def read_metrics(http: httpx.AsyncClient) -> dict[str, float]:
    """Every sample of /metrics by its name and labels."""
    lines = (await http.get("/metrics")).text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")}


def list_workers(process_id: int) -> list[int]:
    """The processes that answer: the workers of a supervisor, or the service itself."""
    workers = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_text()
        except OSError:
            continue
        if parent == process_id and "spawn_main" in command:
            workers.append(int(folder.name))
    return workers or [process_id]

"""Clients, service with its archiver, proxy and store, running, with one check at the end."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.processes import SAFE_OPTIONS, ServiceProcess, StoreProcess
from benchmarks.reliability.chaos.checker import Stored, Violation, check
from benchmarks.reliability.chaos.clients import Clients
from benchmarks.reliability.chaos.proxy import NO_FAULTS, Proxy
from benchmarks.reliability.chaos.store_reader import read_stored

HISTORY_LENGTH = 1000
MARKS_KEPT = 1000
WAIT_LIMIT_S = 120


@dataclass(frozen=True)
class System:
    """All parts; the clients send from the start on."""

    store: StoreProcess
    proxy: Proxy
    service: ServiceProcess
    clients: Clients
    sending: asyncio.Task[None]
    archive: Path
    fault_file: Path
    """What it says becomes of the engine (benchmarks/harness/faulty_engine.py)."""

    async def wait_for(self, acknowledged: int) -> None:
        """Wait until so many events are acknowledged in all. Raises TimeoutError, or what ended the clients."""
        waiting = asyncio.create_task(self.clients.wait_for(acknowledged))
        done, _ = await asyncio.wait({waiting, self.sending}, timeout=WAIT_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            waiting.cancel()
            if not done:
                raise TimeoutError(f"the service did not recover within {WAIT_LIMIT_S} s")
            self.sending.result()

    async def settle(self) -> list[Violation]:
        """Heal, let the clients end with everything acknowledged, and compare what they sent with what is stored."""
        self.proxy.faults = NO_FAULTS
        self.clients.stop()
        await self.sending
        return check(self.clients.sent, await self.read(), history_length=HISTORY_LENGTH, marks_kept=MARKS_KEPT)

    async def read(self) -> Stored:
        """What is stored and archived now."""
        async with self.store.client() as client:
            return await read_stored(client, self.archive)


@asynccontextmanager
async def run_system(
    folder: Path,
    *,
    binary: Path,
    library: Path,
    bundle: Path,
    clients: int = 4,
    options: Mapping[str, str] = SAFE_OPTIONS,
    durability: str = "strict",
) -> AsyncIterator[System]:
    """Start everything in a folder with a short path, and end it."""
    store = StoreProcess(binary, folder, library=library, options=options)
    await store.start()
    async with Proxy(store.url) as proxy:
        archive = folder / "archive"
        archiving = ("--archive-dir", str(archive), "--archive-minutes", "1")
        fault_file = folder / "fault"
        words = ("--fault-file", str(fault_file), "--durability", durability, *archiving)
        service = ServiceProcess(
            proxy.url, bundle, folder / "service.log", *words, module="benchmarks.harness.faulty_engine"
        )
        await service.start()
        sender = Clients(lambda: service.url, count=clients)
        sending = asyncio.create_task(sender.run())
        try:
            yield System(store, proxy, service, sender, sending, archive, fault_file)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await service.stop()
            await store.kill()

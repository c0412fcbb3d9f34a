"""Everything that is done to a running system. Each fault is over when its coroutine returns."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from benchmarks.reliability.chaos.proxy import NO_FAULTS, Faults
from benchmarks.reliability.chaos.system import System

LASTS_S = 1.5
"""How long a fault of the line, or a store that does not answer, goes on: longer than the service waits for a write."""


async def cut_power(system: System) -> None:
    """What the store did not sync is gone; it starts again."""
    await system.store.lose_power()
    await system.store.start()


async def cut_power_in_rewrite(system: System) -> None:
    """The same while the append-only file is written anew."""
    async with system.store.client() as client:
        await client.bgrewriteaof()
    await cut_power(system)


async def cut_power_of_unsafe(system: System) -> None:
    """The store was told to sync once a second, and loses its power when what came before is synced."""
    async with system.store.client() as client:
        await client.config_set("appendfsync", "everysec")
    await asyncio.sleep(2 * LASTS_S)
    await cut_power(system)


async def kill_store(system: System) -> None:
    """SIGKILL, and a new start."""
    await system.store.kill()
    await system.store.start()


async def kill_service(system: System) -> None:
    """SIGKILL in the middle of its requests, and a new start."""
    await system.service.kill()
    await system.service.start()


async def freeze_store(system: System) -> None:
    """SIGSTOP: the store takes commands, and executes them when it goes on, long after they were given up."""
    system.store.signal(signal.SIGSTOP)
    await asyncio.sleep(LASTS_S)
    system.store.signal(signal.SIGCONT)


async def fill_memory(system: System) -> None:
    """No room for another event."""
    async with system.store.client() as client:
        await client.config_set("maxmemory", 1)
        await asyncio.sleep(LASTS_S)
        await client.config_set("maxmemory", 0)


async def fill_clients(system: System) -> None:
    """No room for another connection: the store accepts each, says so and closes it."""
    async with system.store.client() as client:
        before = str((await client.config_get("maxclients"))["maxclients"])
        await client.config_set("maxclients", 1)
        await client.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(LASTS_S)
        await client.config_set("maxclients", before)


def disturb(faults: Faults) -> Callable[[System], Awaitable[None]]:
    """A fault of the line between service and store."""

    async def disturb_line(system: System) -> None:
        system.proxy.faults = faults
        await asyncio.sleep(LASTS_S)
        system.proxy.faults = NO_FAULTS

    return disturb_line


def break_engine(fault: str) -> Callable[[System], Awaitable[None]]:
    """A fault of the engine, as benchmarks/harness/faulty_engine.py has them."""

    async def disturb_engine(system: System) -> None:
        system.fault_file.write_text(fault)
        await asyncio.sleep(LASTS_S)
        system.fault_file.write_text("")

    return disturb_engine


KILLED: Final = "service killed"
"""The only fault that leaves nobody to answer."""

KINDS: Final[Mapping[str, Callable[[System], Awaitable[None]]]] = {
    "power cut": cut_power,
    "power cut while the file is rewritten": cut_power_in_rewrite,
    "power cut after appendfsync everysec": cut_power_of_unsafe,
    "store killed": kill_store,
    KILLED: kill_service,
    "store frozen": freeze_store,
    "store's memory full": fill_memory,
    "store's connections full": fill_clients,
    "replies lost, 30 %": disturb(Faults(lost_replies=0.3)),
    "connections reset, 30 %": disturb(Faults(resets=0.3)),
    "connections closed at once": disturb(Faults(closes=True)),
    "replies 300 ms late": disturb(Faults(delay_s=0.3)),
    "black hole": disturb(Faults(black_hole=True)),
    "engine raises": break_engine("raise"),
    "engine answers NaN": break_engine("nan"),
    "engine takes a second": break_engine("slow 1"),
}

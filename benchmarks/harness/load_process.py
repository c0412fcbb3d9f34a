"""Load in an open loop from a process of its own: no shot is late because of what its parent does meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final

from benchmarks.harness.open_loop import Outcome, Shot, fire

_START_S: Final = 60.0
_END_S: Final = 60.0
"""Until all answers are there."""


@asynccontextmanager
async def firing(
    host: str, port: int, make_shots: Callable[[], Iterable[Shot]], find_fault: Callable[[bytes], str]
) -> AsyncIterator[list[Outcome]]:
    """Fire as `open_loop.fire` does, for as long as the block lasts. The list is filled when it ends.

    Both callables are named at the top of a module, or partials of such. Raises TimeoutError if answers stay away.
    """
    near, far = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_run, args=(host, port, make_shots, find_fault, far), daemon=True)
    process.start()
    far.close()
    outcomes: list[Outcome] = []
    try:
        await _receive(near, _START_S)
        try:
            yield outcomes
        finally:
            near.send(None)
            outcomes += await _receive(near, _END_S)
    finally:
        near.close()
        process.join(_END_S)
        process.kill()


async def _receive(link: Connection, within_s: float) -> list[Outcome]:
    if not await asyncio.to_thread(link.poll, within_s):
        raise TimeoutError(f"the process that sends the load said nothing for {within_s:.0f} s")
    received: list[Outcome] = link.recv()
    return received


def _run(
    host: str,
    port: int,
    make_shots: Callable[[], Iterable[Shot]],
    find_fault: Callable[[bytes], str],
    link: Connection,
) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def end() -> None:  # told to, or the parent is gone
            loop.remove_reader(link.fileno())
            stop.set()

        loop.add_reader(link.fileno(), end)
        link.send([])
        link.send(await fire(host, port, make_shots(), stop=stop, find_fault=find_fault))

    asyncio.run(main())

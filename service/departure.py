"""Clients that leave before their answer: their work is cancelled, so that no batch computes for nobody."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request


@contextmanager
def cancel_on_departure(request: Request) -> Iterator[None]:
    """Cancel what is awaited inside, and raise ClientDisconnect, once the client closes its connection.

    The body must have been read: whoever else waits for messages would miss them.
    """
    task = asyncio.current_task()
    departed = False

    def leave(watch: asyncio.Task[None]) -> None:
        nonlocal departed
        if task is not None and not watch.cancelled():
            departed = task.cancel()

    watch = asyncio.create_task(_wait_for_departure(request))
    watch.add_done_callback(leave)
    try:
        yield
    except asyncio.CancelledError:
        if departed and task is not None and task.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        watch.remove_done_callback(leave)
        watch.cancel()


async def _wait_for_departure(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

"""Clients that leave before their answer: their work is cancelled, so that no batch computes for nobody."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from service.wire import DEPARTURE, Departure


@contextmanager
def cancel_on_departure(request: Request) -> Iterator[None]:
    """Cancel what is awaited inside, and raise ClientDisconnect, once the client closes its connection."""
    departure: Departure | None = request.scope["state"].get(DEPARTURE)
    task = asyncio.current_task()
    if departure is None or task is None:  # none over another server than ours
        yield
        return
    if departure.happened:
        raise ClientDisconnect
    departure.leave = task.cancel
    try:
        yield
    except asyncio.CancelledError:
        if departure.happened and task.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        departure.leave = None

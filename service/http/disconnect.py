"""Cancels the work for a client that disconnects before its answer."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

DISCONNECT = "disconnect"
"""Key of a request's state: the DisconnectSignal of its client."""


class DisconnectSignal:
    """Whether the client has closed its connection, and the callback for when it does."""

    __slots__ = ("disconnected", "on_disconnect")

    def __init__(self) -> None:
        self.disconnected = False
        self.on_disconnect: Callable[[], object] | None = None

    def notify(self) -> None:
        """The client has disconnected."""
        self.disconnected = True
        if self.on_disconnect is not None:
            self.on_disconnect()


@contextmanager
def cancel_on_disconnect(request: Request) -> Iterator[None]:
    """Cancel what is awaited inside, and raise ClientDisconnect, once the client closes its connection."""
    signal: DisconnectSignal | None = request.scope["state"].get(DISCONNECT)
    task = asyncio.current_task()
    if signal is None or task is None:  # missing under another server than LimitedProtocol's
        yield
        return
    if signal.disconnected:
        raise ClientDisconnect
    signal.on_disconnect = task.cancel
    try:
        yield
    except asyncio.CancelledError:
        if signal.disconnected and task.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        signal.on_disconnect = None

"""Limits the memory for request bodies: a budget in bytes, shared by all requests of the process."""

import asyncio
from typing import Any

from service.errors import Overloaded

SMALL_BYTES = 16 * 1024
"""Bodies up to this size do not count: the limits of requests and connections already bound them."""
BODY = "body"
"""Key of a request's state: its HeldBody, if it is a large one."""

_NO_ROOM = "The service is at its limit for request bodies: send the request again later, or send less at once."


class BodyBudget:
    """A budget in bytes. When it is spent, the body that has been arriving longest is evicted.

    Complete bodies count until their requests are answered: what is parsed from them is larger still.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._arriving: dict[HeldBody, None] = {}

    def begin(self, state: dict[str, Any]) -> "HeldBody":
        """Begin to count an arriving body. The caller must call its `end` when the request ends."""
        body = state[BODY] = HeldBody(self)
        self._arriving[body] = None
        return body

    def stop_arriving(self, body: "HeldBody") -> None:
        """A body is complete or was abandoned: it can no longer be evicted."""
        self._arriving.pop(body, None)

    def reserve(self, body: "HeldBody", more_bytes: int) -> None:
        """Change the bytes of a body by `more_bytes`. Raises Overloaded if the budget has no room."""
        while more_bytes > 0 and self._held_bytes + more_bytes > self._limit_bytes:
            oldest = next(iter(self._arriving), body)
            if oldest is body:
                raise Overloaded(_NO_ROOM)
            oldest.evict()
        self._held_bytes += more_bytes


class HeldBody:
    """The bytes held of one body."""

    __slots__ = ("_bodies", "_evicted", "_size", "_task")

    def __init__(self, bodies: BodyBudget) -> None:
        self._bodies = bodies
        self._size = 0
        self._evicted = False
        self._task = asyncio.current_task()

    def grow(self, size: int) -> None:
        """`size` bytes have arrived. Raises Overloaded if the budget has no room."""
        self._bodies.reserve(self, size - self._size)
        self._size = size

    def evict(self) -> None:
        """Give up this body: cancel the task that reads it."""
        self._evicted = True
        self.end()
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """Release its bytes."""
        self._bodies.stop_arriving(self)
        self._bodies.reserve(self, -self._size)
        self._size = 0

    def arrived(self) -> None:
        """The body is complete and can no longer be evicted."""
        self._bodies.stop_arriving(self)

    def explain_cancellation(self) -> None:
        """Raise Overloaded if an eviction cancelled the task that reads this body."""
        if self._evicted and self._task is not None and self._task.uncancel() == 0:
            raise Overloaded(_NO_ROOM) from None

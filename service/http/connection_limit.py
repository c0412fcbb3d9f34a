"""Limits a worker's connections and the bytes of unsent answers; beyond a limit the idlest or slowest is closed."""

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

UNSENT_MAX_BYTES = 64 << 20
"""Unsent answers of all connections together."""
WARN_EVERY_S = 60.0
"""Shortest interval between two warnings about the limit."""

_CANDIDATES = 64
"""How many connections are examined to find one to close. Examining more would delay all others."""
_log = logging.getLogger(__name__)


class Connection(Protocol):
    """What the limit needs of a connection."""

    @property
    def idle_since(self) -> int | None:
        """When its last request arrived, as a growing number; None while one is being answered."""

    def abort(self) -> None:
        """Close it at once."""


class ConnectionLimit:
    """The open connections of this process. `on_change` gets their number whenever it changes."""

    def __init__(self, limit: int | None = None, *, on_change: Callable[[int], None] = lambda _number: None) -> None:
        self._limit = limit
        self._on_change = on_change
        self._open: OrderedDict[Connection, None] = OrderedDict()
        self._unsent: dict[Connection, int] = {}
        self._unsent_bytes = 0
        self._warned_s = -WARN_EVERY_S

    def opened(self, connection: Connection) -> None:
        """Count a connection. Beyond the limit close the one that has been idle longest, or this one."""
        self._open[connection] = None
        if self._limit is not None and len(self._open) > self._limit:
            self._close_one(connection, self._limit)
        self._on_change(len(self._open))

    def closed(self, connection: Connection) -> None:
        """Stop counting a connection."""
        self.remove_unsent(connection)
        self._open.pop(connection, None)
        self._on_change(len(self._open))

    def add_unsent(self, connection: Connection, size: int) -> None:
        """`size` bytes wait for a slow client. Beyond the limit the one that has been slow longest is disconnected."""
        self.remove_unsent(connection)
        self._unsent[connection] = size
        self._unsent_bytes += size
        while self._unsent_bytes > UNSENT_MAX_BYTES:
            slowest = next(iter(self._unsent))
            self.remove_unsent(slowest)
            slowest.abort()

    def remove_unsent(self, connection: Connection) -> None:
        """All bytes have been sent to the client."""
        self._unsent_bytes -= self._unsent.pop(connection, 0)

    def _close_one(self, newest: Connection, limit: int) -> None:
        """Examine some connections, in rotation, and close the one that has been idle longest."""
        now_s = time.monotonic()
        if now_s - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now_s
            _log.warning("Connection limit reached: closing idle connections", extra={"fields": {"limit": limit}})
        chosen, since = newest, math.inf
        for _ in range(min(_CANDIDATES, len(self._open))):
            connection, _ = self._open.popitem(last=False)
            self._open[connection] = None
            idle_since = connection.idle_since
            if idle_since is not None and idle_since < since:
                chosen, since = connection, idle_since
        self._open.pop(chosen)
        chosen.abort()

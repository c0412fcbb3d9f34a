"""The service's port: bound once, and shared among the workers so that connections are distributed evenly."""

import errno
import logging
import socket
import sys
import time

from service.errors import StartFailed

REUSEPORT_SOCKETS = 4
"""SO_REUSEPORT sockets per worker, besides the shared one. With two workers the shared socket is one of nine."""
_HAS_REUSEPORT = sys.platform.startswith("linux")
"""On other systems the last socket on a port gets all connections."""
_RETRY_S = 0.1
_log = logging.getLogger(__name__)


def bind(host: str, port: int, *, patience_s: float = 0.0) -> socket.socket:
    """A socket bound to an address, not listening yet. Raises StartFailed.

    An address in use is retried for `patience_s`, because workers of a killed service need a moment to end.
    """
    until_s, waits = time.monotonic() + patience_s, False
    while True:
        try:
            return _bind_once(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= until_s:
                raise StartFailed(f"cannot listen on {host} port {port}: {error.strerror}") from error
        except UnicodeError as error:  # an empty or overlong label
            raise StartFailed(f"cannot listen on {host} port {port}: this is not a host name") from error
        if not waits:
            _log.warning("Address %s port %d is in use: trying for %.0f s", host, port, patience_s)
            waits = True
        time.sleep(_RETRY_S)


def _bind_once(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def listen(listener: socket.socket, *, backlog: int) -> socket.socket:
    """Listen on a bound socket. Raises StartFailed."""
    try:
        listener.listen(backlog)
    except OSError as error:
        raise StartFailed(f"cannot listen: {error.strerror}") from error
    return listener


def share_port(listener: socket.socket, *, backlog: int) -> socket.socket:
    """Listen on the bound socket that all workers share. Raises StartFailed.

    With one socket for all, the worker that wakes first takes the connections: in a benchmark one worker got all
    sixteen. So on Linux each worker also has sockets of its own on the same port (`open_reuseport_sockets`), and the
    kernel distributes connections among all of them by address. Connections wait at the shared socket while no worker
    lives.
    """
    shared = listen(listener, backlog=backlog)
    if _HAS_REUSEPORT:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return shared


def open_reuseport_sockets(shared: socket.socket) -> list[socket.socket]:
    """One worker's own sockets on the port. They get connections once it listens on them. Raises OSError.

    The supervisor opens them and keeps them open. A successor gets the same sockets, so that connections which the old
    worker had not accepted yet are not reset.
    """
    sockets: list[socket.socket] = []
    try:
        for _ in range(REUSEPORT_SOCKETS if _HAS_REUSEPORT else 0):
            sockets.append(socket.socket(shared.family, shared.type, shared.proto))
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sockets[-1].bind(shared.getsockname())
    except OSError:
        for own in sockets:
            own.close()
        raise
    return sockets

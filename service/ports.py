"""The service's port: bound once, and shared among workers so that each gets its part of the connections."""

import os
import socket
import sys

from service.errors import StartFailed

DOORS = 4
"""A worker's own sockets beside the one for all, which gets a ninth of two workers' connections with four."""


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address, not listening yet. Raises StartFailed when it cannot be had."""
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise StartFailed(f"cannot listen on {host} port {port}: {error.strerror}") from error
    except UnicodeError as error:  # an empty or overlong label
        raise StartFailed(f"cannot listen on {host} port {port}: this is no host name") from error
    return listener


def listen(listener: socket.socket, *, backlog: int) -> socket.socket:
    """Take connections on a bound socket. Raises StartFailed."""
    try:
        listener.listen(backlog)
    except OSError as error:
        raise StartFailed(f"cannot listen: {error.strerror}") from error
    return listener


def share_port(listener: socket.socket, *, backlog: int) -> list[socket.socket]:
    """What to hand to worker processes in place of a bound socket, which stays open. Raises StartFailed.

    From one socket for all, idle workers take connections as they wake: all sixteen of a benchmark went to one worker.
    So on Linux each worker opens the port some times more for itself, and the kernel deals connections out by their
    addresses. The socket for all remains one among these, where connections wait while no worker lives.
    """
    shared = listen(listener, backlog=backlog)
    if not sys.platform.startswith("linux"):
        return [shared]  # elsewhere the last to open a port gets everything
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return [shared, *(_Door(shared.family, shared.type, shared.proto, os.dup(shared.fileno())) for _ in range(DOORS))]


class _Door(socket.socket):
    """A socket that is opened anew, on the same port, in every process that it is sent to."""

    def __reduce__(self) -> tuple[object, ...]:
        return _open, (self.family, self.getsockname())


def _open(family: int, address: tuple[object, ...]) -> socket.socket:
    door = socket.socket(family, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    door.bind(address)
    return door

"""The service's port: bound once, and shared among workers so that each gets its part of the connections."""

import os
import socket
import sys

from service.errors import StartFailed


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


def share_port(listener: socket.socket, *, backlog: int) -> socket.socket:
    """What to hand to worker processes in place of a bound socket, which stays open. Raises StartFailed.

    On Linux each of them opens a socket of its own, and the kernel deals connections out by their addresses. From one
    socket for all, idle workers take them as they wake: all sixteen of a benchmark went to the same one.
    """
    if not sys.platform.startswith("linux"):
        return listen(listener, backlog=backlog)  # elsewhere the last to open a port gets everything
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return _Door(listener.family, listener.type, listener.proto, os.dup(listener.fileno()))


class _Door(socket.socket):
    """A bound socket that is opened anew, listening, in every process that it is sent to. It never listens itself."""

    def __reduce__(self) -> tuple[object, ...]:
        return _open, (self.family, self.getsockname())


def _open(family: int, address: tuple[object, ...]) -> socket.socket:
    door = socket.socket(family, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    door.bind(address)
    return door

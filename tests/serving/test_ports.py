"""The port that workers share."""

import contextlib
import socket
import sys

import pytest

from service.errors import StartFailed
from service.ports import bind, listen, share_port

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere workers share one socket")


def send_to_worker(door):
    """What a process gets that the socket is pickled for."""
    make, arguments = door.__reduce__()
    return make(*arguments)


def take_all(listener):
    """How many connections wait at a socket."""
    listener.setblocking(False)
    taken = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            taken += 1
    return taken


@linux
def test_each_worker_gets_its_part_of_the_connections():
    """Two doors of one port share 200 connections, whoever wakes first; the socket that holds the port gets none."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(bind("127.0.0.1", 0))
        door = stack.enter_context(share_port(listener, backlog=256))
        workers = [stack.enter_context(send_to_worker(door)) for _ in range(2)]
        for worker in workers:
            worker.listen(256)
        for _ in range(200):
            stack.enter_context(socket.create_connection(listener.getsockname(), timeout=5))
        taken = [take_all(worker) for worker in workers]
    assert sum(taken) == 200
    assert min(taken) > 50


@linux
def test_a_worker_that_ends_leaves_its_part_to_the_others():
    """New connections go to whoever still listens."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(bind("127.0.0.1", 0))
        door = stack.enter_context(share_port(listener, backlog=64))
        gone, stays = (stack.enter_context(send_to_worker(door)) for _ in range(2))
        gone.listen(64)
        stays.listen(64)
        gone.close()
        for _ in range(20):
            stack.enter_context(socket.create_connection(listener.getsockname(), timeout=5))
        assert take_all(stays) == 20


def test_a_port_in_use_is_refused_though_it_is_shared():
    """A second service must not quietly take a part of the first one's connections."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(bind("127.0.0.1", 0))
        door = stack.enter_context(share_port(listener, backlog=1))
        worker = stack.enter_context(send_to_worker(door)) if sys.platform.startswith("linux") else door
        listen(worker, backlog=1)
        with pytest.raises(StartFailed, match=f"port {listener.getsockname()[1]}"):
            bind("127.0.0.1", listener.getsockname()[1])

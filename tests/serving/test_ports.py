"""The port that workers share."""

import contextlib
import socket
import sys

import pytest

from service.errors import StartFailed
from service.ports import bind, share_port

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere workers share one socket")


def send_to_worker(sockets):
    """What a process gets that the sockets are pickled for: the first is the one for all, the others are made anew."""
    return [sockets[0], *(make(*arguments) for make, arguments in (door.__reduce__() for door in sockets[1:]))]


def take_all(listeners):
    """How many connections wait."""
    taken = 0
    for listener in listeners:
        listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                listener.accept()[0].close()
                taken += 1
    return taken


@pytest.fixture
def stack():
    """Closes whatever it is given."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def shared(stack):
    """A port as workers get it."""
    return [stack.enter_context(each) for each in share_port(bind("127.0.0.1", 0), backlog=256)]


def start_worker(stack, shared):
    """A worker's sockets, taking connections."""
    worker = send_to_worker(shared)
    for own in worker[1:]:
        stack.enter_context(own).listen(256)
    return worker


def call(stack, shared, times):
    """Open so many connections."""
    for _ in range(times):
        stack.enter_context(socket.create_connection(shared[0].getsockname(), timeout=5))


@linux
def test_each_worker_gets_its_part_of_the_connections(stack, shared):
    """Of 200 connections each of two workers gets some 90 of its own, whoever wakes first."""
    workers = [start_worker(stack, shared)[1:] for _ in range(2)]
    call(stack, shared, 200)
    own = [take_all(worker) for worker in workers]
    assert sum(own) + take_all(shared[:1]) == 200
    assert min(own) > 40


@linux
def test_a_worker_that_ends_leaves_its_part_to_the_others(stack, shared):
    """New connections go to whoever still lives."""
    gone, stays = (start_worker(stack, shared) for _ in range(2))
    for own in gone[1:]:
        own.close()
    call(stack, shared, 20)
    assert take_all(stays) == 20


@linux
def test_connections_wait_while_no_worker_lives(stack, shared):
    """Whoever replaces the last worker finds them."""
    for own in start_worker(stack, shared)[1:]:
        own.close()
    call(stack, shared, 20)
    assert take_all(start_worker(stack, shared)) == 20


def test_a_port_in_use_is_refused_though_it_is_shared(stack, shared):
    """A second service must not quietly take a part of the first one's connections."""
    start_worker(stack, shared)
    with pytest.raises(StartFailed, match=f"port {shared[0].getsockname()[1]}"):
        bind("127.0.0.1", shared[0].getsockname()[1])

"""The port that workers share."""

import contextlib
import socket
import sys
import threading

import pytest

from service.errors import StartFailed
from service.process.ports import bind, open_reuseport_sockets, share_port

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere workers share one socket")


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
    """The socket that all workers share."""
    return stack.enter_context(share_port(bind("127.0.0.1", 0), backlog=256))


def start_worker(stack, shared):
    """A worker's own sockets, taking connections."""
    sockets = [stack.enter_context(own) for own in open_reuseport_sockets(shared)]
    for own in sockets:
        own.listen(256)
    return sockets


def call(stack, shared, times):
    """Open so many connections."""
    for _ in range(times):
        stack.enter_context(socket.create_connection(shared.getsockname(), timeout=60))


@linux
def test_each_worker_gets_its_part_of_the_connections(stack, shared):
    """Of 200 connections each of two workers gets some 90 of its own, whoever wakes first."""
    workers = [start_worker(stack, shared) for _ in range(2)]
    call(stack, shared, 200)
    own = [take_all(worker) for worker in workers]
    assert sum(own) + take_all([shared]) == 200
    assert min(own) > 40


@linux
def test_a_worker_that_ends_leaves_its_part_to_the_others(stack, shared):
    """New connections go to whoever still lives."""
    gone, stays = (start_worker(stack, shared) for _ in range(2))
    for own in gone:
        own.close()
    call(stack, shared, 20)
    assert take_all([shared, *stays]) == 20


@linux
def test_a_worker_that_takes_over_finds_what_waited_for_the_old_one(stack, shared):
    """Connections that nobody had accepted are not reset when the old one lets go of its sockets."""
    sockets = start_worker(stack, shared)
    old = [stack.enter_context(own.dup()) for own in sockets]
    call(stack, shared, 20)
    for own in old:
        own.close()
    successor = [stack.enter_context(own.dup()) for own in sockets]
    assert take_all([shared, *successor]) == 20


@linux
def test_nobody_waits_for_a_worker_that_still_loads(stack, shared):
    """Sockets that nobody listens on yet get no connections."""
    loads = [stack.enter_context(own) for own in open_reuseport_sockets(shared)]
    serves = start_worker(stack, shared)
    call(stack, shared, 20)
    assert take_all([shared, *serves]) == 20
    for own in loads:
        with pytest.raises(OSError, match="Invalid argument"):
            own.accept()


@linux
def test_connections_wait_while_no_worker_lives(stack, shared):
    """Whoever replaces the last worker finds them."""
    for own in start_worker(stack, shared):
        own.close()
    call(stack, shared, 20)
    assert take_all([shared, *start_worker(stack, shared)]) == 20


def test_a_port_in_use_is_refused_though_it_is_shared(stack, shared):
    """A second service must not quietly take a part of the first one's connections."""
    start_worker(stack, shared)
    with pytest.raises(StartFailed, match=f"port {shared.getsockname()[1]}"):
        bind("127.0.0.1", shared.getsockname()[1])


def test_a_port_that_is_about_to_be_left_is_waited_for(stack):
    """Workers of a service that was killed hold it a moment longer."""
    holder = bind("127.0.0.1", 0)
    port = holder.getsockname()[1]
    holder.listen()
    leaves = threading.Timer(0.5, holder.close)
    leaves.start()
    assert stack.enter_context(bind("127.0.0.1", port, patience_s=30)).getsockname()[1] == port
    leaves.join()

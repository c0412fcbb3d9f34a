"""When a supervisor tries again, and whom it takes for hung; what it does with real workers: http/test_workers.py."""

import ctypes
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from service.process import supervisor
from service.process.supervisor import Supervisor
from service.process.worker import BACKOFF_MAX_S, SILENCE_LIMIT_S, Heartbeat, Worker
from service.telemetry.multiprocess import lock_readers


@pytest.fixture
def clock(monkeypatch):
    """The supervisor's clock, which moves by hand."""
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return clock


@pytest.fixture
def supervised(clock, tmp_path):  # noqa: ARG001 - it must tell the time from the start
    """A supervisor of one worker that starts none by itself."""
    unused: Any = None
    return Supervisor(
        count=1,
        start=unused,
        open_sockets=list,
        bundle=unused,
        find_bundle=unused,
        announce=lambda: None,
        missing=ctypes.c_uint(),
        gauges=SimpleNamespace(workers_seen=lambda **_: None, worker_died=lambda: None),
        metrics_folder=tmp_path,
        drain_delay_s=0,
    )


@pytest.fixture
def worker(supervised):
    """Its worker, which serves and whose signals are noted."""
    process: Any = SimpleNamespace(pid=0, exitcode=None, is_alive=lambda: True, sentinel=None)
    unused: Any = None
    worker: Any = Worker(process, Heartbeat(ready=True, beats=1), unused, 0.0, serves=True)
    worker.sent = []
    worker.send = worker.sent.append
    supervised._slots[0].worker = worker
    return worker


def test_it_tries_again_ever_more_seldom_and_never_gives_up(supervised, clock):
    """At once, then after 1, 2, 4 ... seconds up to a bound, which holds after thousands of failures."""
    [slot] = supervised._slots
    delays = []
    for _ in range(5000):
        slot.delay_retry(clock.now_s, refused=True)
        delays.append(slot.retry_at_s - clock.now_s)
    assert delays[:7] == [0, 1, 2, 4, 8, 16, BACKOFF_MAX_S]
    assert set(delays[7:]) == {BACKOFF_MAX_S}


def test_a_silent_worker_is_killed_once(supervised, clock, worker):
    """After so long without a beat, and not before; one that beats is left alone."""
    for _ in range(int(3 * SILENCE_LIMIT_S)):
        clock.now_s += 1
        worker.heartbeat.beats += 1
        supervised._check_workers()
    assert worker.sent == []
    for _ in range(int(SILENCE_LIMIT_S) + 2):
        clock.now_s += 1
        supervised._check_workers()
    assert worker.sent == [signal.SIGKILL]


def test_a_supervisor_that_was_stopped_itself_kills_nobody(supervised, clock, worker):
    """The whole group was stopped for an hour, as by Ctrl-Z: the workers could not beat, either."""
    supervised._check_workers()
    clock.now_s += 3600
    supervised._check_workers()
    assert worker.sent == []


def test_it_waits_for_no_reader_of_the_metrics(supervised, tmp_path):
    """One may hang, and only the supervisor could end it: the counts of the dead are kept the next time."""
    left = tmp_path / "counter_99999999.db"
    left.touch()
    with lock_readers(tmp_path, alone=False):
        supervised._merge_dead_metrics()
        assert left.exists()
    supervised._merge_dead_metrics()
    assert not left.exists()

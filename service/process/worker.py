"""One worker as its supervisor sees it: heartbeat, signals, deadlines, and the slot that it fills."""

import ctypes
import logging
import os
import signal
import socket
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess

from model.contract.bundle import OpenBundle

REFUSED = 3
"""Exit status of a worker that cannot start and has logged why: uvicorn's own (STARTUP_FAILURE)."""
DRAIN = signal.SIGUSR1
"""Signal to a worker: the whole service is about to stop. Report not ready, but go on answering."""
RETIRE = signal.SIGUSR2
"""Signal to a worker: a successor serves. Accept no new connections, and ask clients to close theirs."""
FINISH_LIMIT_S = 10.0
"""How long requests in flight may take to finish after the last was accepted."""
KILL_AFTER_S = FINISH_LIMIT_S + 10.0
"""How long after SIGTERM a worker is killed."""
SILENCE_LIMIT_S = 8.5
"""A worker without a heartbeat for this long is killed. If it can, its own watchdog ends it sooner and logs why."""
START_LIMIT_S = 900.0
"""How long a worker may take to load its model."""
BACKOFF_MAX_S = 30.0
"""Longest delay between two attempts to start a worker. The first delay is a second."""

_log = logging.getLogger(__name__)


class Heartbeat(ctypes.Structure):
    """What a worker reports to its supervisor, in shared memory."""

    ready: bool
    """Whether it accepts requests."""
    beats: int
    """Ticks of its event loop."""

    _fields_ = (("ready", ctypes.c_bool), ("beats", ctypes.c_uint64))


@dataclass(eq=False)
class Worker:
    """A worker process. Times are those of time.monotonic, in seconds."""

    process: SpawnProcess
    heartbeat: Heartbeat
    bundle: OpenBundle
    since_s: float
    """When it was started, or began to serve."""
    serves: bool = False
    beats: int = 0
    silent_s: float = 0.0
    signals_due: list[tuple[float, signal.Signals]] = field(default_factory=list)
    """Signals still to send, and when."""

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)

    def check(self, now_s: float, passed_s: float) -> None:
        """See whether it serves, and kill it if it hangs. `passed_s` is the time since the last check."""
        beats = self.heartbeat.beats
        self.silent_s = 0.0 if beats != self.beats else self.silent_s + passed_s
        self.beats = beats
        if not self.serves and self.heartbeat.ready:
            self.serves, self.since_s, self.silent_s = True, now_s, 0.0
        if self.silent_s > SILENCE_LIMIT_S if self.serves else now_s - self.since_s > START_LIMIT_S:
            _log.error("Killing a worker that does not respond", extra={"fields": {"worker": self.process.pid}})
            self.send(signal.SIGKILL)
            self.silent_s, self.since_s = 0.0, now_s  # only once, until it has ended

    def begin_stop(self, number: signal.Signals | None, now_s: float, delay_s: float) -> None:
        """Send a signal now; SIGTERM, `delay_s` later, and SIGKILL, KILL_AFTER_S after that, are due."""
        if number is not None:
            self.send(number)
        self.signals_due = [(now_s + delay_s, signal.SIGTERM), (now_s + delay_s + KILL_AFTER_S, signal.SIGKILL)]

    def send_due(self, now_s: float) -> None:
        """Send the signals whose time has come."""
        while self.signals_due and now_s >= self.signals_due[0][0]:
            number = self.signals_due.pop(0)[1]
            if number is signal.SIGKILL:
                _log.error("Killed a worker that did not stop in time", extra={"fields": {"worker": self.process.pid}})
            self.send(number)

    def ended(self) -> bool:
        """Whether it has ended; if so, it is joined."""
        if self.process.is_alive():
            return False
        self.process.join()
        return True


@dataclass(eq=False)
class Slot:
    """One worker's slot. Its sockets outlive the worker when a successor takes over, so no connection is reset."""

    sockets: list[socket.socket] = field(default_factory=list)
    worker: Worker | None = None
    successor: Worker | None = None
    """Replaces the worker as soon as it is ready."""
    failures: int = 0
    """Consecutive workers that could not start or died early."""
    refused: bool = False
    """Whether the last worker never began to serve."""
    retry_at_s: float = 0.0

    def delay_retry(self, now_s: float, *, refused: bool) -> None:
        """Schedule the next start: at once after a first failure, then ever later."""
        self.refused = refused
        doublings = min(self.failures, 10) - 1
        self.retry_at_s = now_s + (min(2.0**doublings, BACKOFF_MAX_S) if self.failures else 0.0)
        self.failures += 1

    def close(self) -> None:
        """Close its sockets."""
        for own in self.sockets:
            own.close()
        self.sockets = []

"""The supervisor of several workers: restarts dead workers, and replaces all of them one by one on request.

A worker that cannot start does not affect those that serve: it is retried with increasing delays. The service ends if
the first start fails, and if no worker is left and none can start.

The supervisor never blocks on one worker: every state has a deadline, checked in turn. Signals take effect at once.
"""

import ctypes
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from types import FrameType
from typing import Protocol

from model.contract.bundle import OpenBundle
from service.errors import StartFailed
from service.process.worker import DRAIN, REFUSED, RETIRE, Heartbeat, Slot, Worker
from service.telemetry.multiprocess import merge_dead_workers

STEADY_S = 10.0
"""A worker that dies sooner after it began to serve counts as a failure. Repeated failures delay the next start."""
_POLL_S = 0.25
_log = logging.getLogger(__name__)


class Gauges(Protocol):
    """The supervisor's metrics."""

    def workers_seen(self, *, configured: int, missing: int) -> None:
        """Set the number of configured workers, and of those that do not serve."""

    def worker_died(self) -> None:
        """Count a worker that ended unexpectedly."""


Start = Callable[[OpenBundle, list[socket.socket], Heartbeat], SpawnProcess]
"""Starts a worker for a bundle on some sockets. Raises OSError."""


@dataclass(eq=False)
class _Rollout:
    """A replacement of the workers one by one. If the first new worker serves, the new bundle is accepted."""

    bundle: OpenBundle
    slots: list[Slot]
    proven: bool = False


class Supervisor:
    """Keeps `count` workers running until it is told to stop.

    On SIGTERM or SIGINT the workers report not ready at once and answer for the drain delay. A second signal kills
    them.
    """

    def __init__(
        self,
        *,
        count: int,
        start: Start,
        open_sockets: Callable[[], list[socket.socket]],
        bundle: OpenBundle,
        find_bundle: Callable[[], OpenBundle],
        announce: Callable[[], None],
        missing: ctypes.c_uint,
        gauges: Gauges,
        metrics_folder: Path,
        drain_delay_s: float,
    ) -> None:
        """`open_sockets` opens one worker's sockets. `missing` is shared memory: how many workers do not serve."""
        self._start = start
        self._open_sockets = open_sockets
        self._bundle = bundle
        self._find_bundle = find_bundle
        self._announce: Callable[[], None] | None = announce
        self._missing = missing
        self._gauges = gauges
        self._metrics_folder = metrics_folder
        self._drain_delay_s = drain_delay_s
        self._slots = [Slot() for _ in range(count)]
        self._stopping: list[Worker] = []
        self._rollout: _Rollout | None = None
        self._rollout_wanted = False
        self._stop_signals = 0
        self._failed = False
        self._checked_s = time.monotonic()

    def run(self) -> int:
        """Serve until told to stop. Returns the exit status: 0, or 1 if no worker can start."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # meant for workers; unhandled they would end this process
            signal.signal(number, lambda _number, _frame: None)
        while not self._stop_signals and not self._failed:
            self._merge_dead_metrics()
            self._start_missing()
            self._wait()
            self._check_workers()
            if all(slot.refused and slot.worker is None and slot.successor is None for slot in self._slots):
                _log.critical("No worker is left and none can start: stopping the service")
                self._failed = True
            self._advance_rollout()
            self._report()
        self._stop_all()
        return 1 if self._failed else 0

    def replace_all(self) -> None:
        """Request a replacement of the workers one by one, with `find_bundle`'s bundle. Safe in a signal handler."""
        self._rollout_wanted = True

    def _on_stop_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_signals += 1

    def _living(self) -> Iterator[Worker]:
        for slot in self._slots:
            yield from (worker for worker in (slot.worker, slot.successor) if worker is not None)
        yield from self._stopping

    def _wait(self) -> None:
        """Wait until a worker ends, at most _POLL_S."""
        wait([worker.process.sentinel for worker in self._living()], _POLL_S)

    def _start_missing(self) -> None:
        """Start missing workers whose retry time has come."""
        now_s = time.monotonic()
        for slot in self._slots:
            if slot.worker is None and slot.successor is None and now_s >= slot.retry_at_s:
                slot.worker = self._start_worker(slot, self._bundle)

    def _start_worker(self, slot: Slot, bundle: OpenBundle) -> Worker | None:
        try:
            heartbeat = RawValue(Heartbeat)
            if not slot.sockets:
                slot.sockets = self._open_sockets()
            process = self._start(bundle, slot.sockets, heartbeat)
        except OSError as error:
            _log.error("Worker process could not be created", extra={"fields": {"why": error.strerror}})
            slot.delay_retry(time.monotonic(), refused=True)
            return None
        return Worker(process, heartbeat, bundle, time.monotonic())

    def _check_workers(self) -> None:
        """Check all workers: which serve, hang, are due a signal, or have died."""
        now_s = time.monotonic()
        # If this process was stopped for a while, the workers probably were, too: count only a moment.
        passed_s = min(now_s - self._checked_s, 4 * _POLL_S)
        self._checked_s = now_s
        for worker in [*self._living()]:
            if worker in self._stopping:
                worker.send_due(now_s)
            else:
                worker.check(now_s, passed_s)
        self._stopping = [worker for worker in self._stopping if not worker.ended()]
        for slot in self._slots:
            if slot.successor is not None and slot.successor.ended():
                successor, slot.successor = slot.successor, None
                self._record_exit(slot, successor)
                if slot.worker is None:
                    slot.close()
                if self._rollout is not None and not self._rollout.proven:
                    self._abort_rollout()
            if slot.worker is not None and slot.worker.ended():
                worker, slot.worker = slot.worker, None
                self._record_exit(slot, worker)
                if slot.successor is None:
                    slot.close()  # else connections would wait there for the next worker; now they go to the others

    def _record_exit(self, slot: Slot, worker: Worker) -> None:
        """Record that a worker ended by itself, and schedule the next start."""
        fields = {"worker": worker.process.pid, "status": worker.process.exitcode}
        if worker.serves:
            _log.error("Worker died", extra={"fields": fields})
            if time.monotonic() - worker.since_s >= STEADY_S:
                slot.failures = 0
        else:
            _log.error("Worker could not start", extra={"fields": fields})
            self._failed = self._failed or (self._announce is not None and worker.process.exitcode == REFUSED)
        self._gauges.worker_died()
        slot.delay_retry(time.monotonic(), refused=not worker.serves)

    def _advance_rollout(self) -> None:
        """Take the next step of a requested replacement."""
        if self._rollout is None:
            if self._rollout_wanted and self._announce is None:
                self._rollout_wanted = False
                self._begin_rollout()
            return
        if self._stopping:
            return  # the models of at most one extra worker in memory at a time
        rollout = self._rollout
        if not rollout.slots:
            self._rollout = None
            named = f"{rollout.bundle.manifest.name} {rollout.bundle.manifest.version}"
            _log.info("All workers were replaced and serve %s", named, extra={"fields": {"workers": len(self._slots)}})
            return
        slot = rollout.slots[0]
        if slot.successor is None:
            if slot.worker is not None and slot.worker.bundle is rollout.bundle:
                rollout.slots.pop(0)  # it died meanwhile, and its successor is already a new one
            elif time.monotonic() >= slot.retry_at_s:
                slot.successor = self._start_worker(slot, rollout.bundle)
        elif slot.successor.serves:
            self._hand_over(rollout, rollout.slots.pop(0))

    def _begin_rollout(self) -> None:
        try:
            bundle = self._find_bundle()
        except StartFailed as error:
            _log.error("Workers were not replaced", extra={"fields": {"why": str(error)}})
            return
        _log.info("Replacing the workers one by one to serve %s", f"{bundle.manifest.name} {bundle.manifest.version}")
        self._rollout = _Rollout(bundle, [*self._slots])

    def _hand_over(self, rollout: _Rollout, slot: Slot) -> None:
        """The successor serves: its bundle becomes the current one, and the old worker finishes its requests."""
        if not rollout.proven:
            rollout.proven = True
            self._bundle.close()
            self._bundle = rollout.bundle
        old, slot.worker, slot.successor = slot.worker, slot.successor, None
        slot.failures, slot.refused = 0, False
        if old is not None:
            self._begin_stop(old, RETIRE, self._drain_delay_s)

    def _abort_rollout(self) -> None:
        if self._rollout is not None:
            self._rollout.bundle.close()
            self._rollout = None
            _log.error("The first new worker could not start: keeping the old workers")

    def _begin_stop(self, worker: Worker, number: signal.Signals | None, delay_s: float) -> None:
        worker.begin_stop(number, time.monotonic(), delay_s)
        self._stopping.append(worker)

    def _merge_dead_metrics(self) -> None:
        """Merge the counters of dead workers and drop their gauges."""
        living = {worker.process.pid for worker in self._living()} | {os.getpid()}
        try:
            merge_dead_workers({pid for pid in living if pid}, self._metrics_folder)
        except BlockingIOError:
            return  # a worker is reading them: retry on the next turn
        except Exception:  # noqa: BLE001 - lost metrics must not stop the service
            _log.exception("Merging the metrics of a dead worker failed")

    def _report(self) -> None:
        missing = sum(not (slot.worker and slot.worker.serves) for slot in self._slots)
        if self._announce is not None and missing == 0:
            self._announce()
            self._announce = None
        if self._announce is None:
            self._missing.value = missing
        self._gauges.workers_seen(configured=len(self._slots), missing=missing)

    def _stop_all(self) -> None:
        already = [*self._stopping]
        for worker in [*self._living()]:
            if worker in already:
                continue
            if self._failed or not worker.serves:
                self._begin_stop(worker, None, 0.0)
            else:
                self._begin_stop(worker, DRAIN, self._drain_delay_s)
        for slot in self._slots:
            slot.worker = slot.successor = None
        while self._stopping and self._stop_signals < 2:
            self._wait()
            self._check_workers()
        for worker in self._stopping:
            worker.send(signal.SIGKILL)
            worker.process.join()
        for slot in self._slots:
            slot.close()

"""Ends a process whose event loop hangs, so that its supervisor or service manager starts another.

A health probe cannot detect this: it reaches any of several workers, and the hung one still accepts connections.
"""

import logging
import os
import sys
import threading
import traceback

CHECK_EVERY_S = 1.0
_LOG_LIMIT_S = 2.0
_STATUS = 1
_log = logging.getLogger(__name__)


class Watchdog:
    """A thread that ends the process after `limit_s` seconds without a `beat`. It logs all stacks first.

    It counts its own checks and not the clock, so that a process survives being stopped (SIGSTOP, a debugger). A thread
    that holds the GIL blocks the watchdog, too; with several workers the supervisor then kills the process.
    """

    def __init__(self, limit_s: float, *, check_every_s: float = CHECK_EVERY_S) -> None:
        self._check_every_s = check_every_s
        self._limit = round(limit_s / check_every_s)
        self._beats = 0
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def beat(self) -> None:
        """Record a turn of the loop."""
        self._beats += 1

    def stop(self) -> None:
        """Stop watching: the loop is about to end."""
        self._stopped.set()

    def _watch(self) -> None:
        seen, silent = self._beats, 0
        while not self._stopped.wait(self._check_every_s):
            silent = silent + 1 if self._beats == seen else 0
            seen = self._beats
            if silent >= self._limit:
                # In another thread: the hanging one may hold the lock of the log.
                reporter = threading.Thread(target=self._report, name="watchdog-report", daemon=True)
                reporter.start()
                reporter.join(_LOG_LIMIT_S)
                os._exit(_STATUS)  # a clean exit would hang, too

    def _report(self) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = {
            names.get(ident, str(ident)): [
                f"{entry.filename}:{entry.lineno} {entry.name}" for entry in traceback.extract_stack(frame)
            ]
            for ident, frame in sys._current_frames().items()  # noqa: SLF001 - documented; what debuggers use
        }
        _log.critical(
            "Event loop blocked for %.0f s: ending this process",
            self._limit * self._check_every_s,
            extra={"fields": {"threads": stacks}},
        )

"""A process beside the service, restarted when it dies. It never outlives the service, and stops before it does."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from service.system import parent_death

STOP_LIMIT_S: Final = 10.0
"""Time limit for the process to end. It reacts to a signal within a second or two."""

RESTART_S: Final = (1.0, 60.0)
"""First and longest delay before a dead process is restarted; the delay doubles each time."""

_ROOMS: Final = str(Path(__file__).parents[2])

_log = logging.getLogger(__name__)


class ChildProcess:
    """`nextitem-serve WORD` in a process of its own. `name` is for the log."""

    def __init__(self, name: str, word: str, environment: Mapping[str, str]) -> None:
        """Settings go by `environment`: other users could read a password on the command line."""
        self._name, self._word = name, word
        # An installed package has a folder for its rooms, which only its own commands know (decision 0014).
        path = os.pathsep.join(filter(None, (_ROOMS, environment.get("PYTHONPATH"))))
        self._environment = {**environment, "PYTHONPATH": path}
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        # The parent-death signal follows the thread that starts the process: this thread, which lives as long.
        self._restart_thread = threading.Thread(target=self._restart_until_stopped, name=word, daemon=True)

    def start(self) -> None:
        self._restart_thread.start()

    def stop(self) -> None:
        """Stop the process, by force after STOP_LIMIT_S: the next start redoes unfinished work."""
        self._stopping.set()
        with self._lock:
            process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._restart_thread.join()

    def _restart_until_stopped(self) -> None:
        pause_s, longest_s = RESTART_S
        while True:
            started_s = time.monotonic()
            how = self._run()
            if self._stopping.is_set():
                return
            if time.monotonic() - started_s > longest_s:
                pause_s = RESTART_S[0]
            _log.error("%s process %s; restarting it in %g s", self._name, how, pause_s)
            if self._stopping.wait(pause_s):
                return
            pause_s = min(2 * pause_s, longest_s)

    def _run(self) -> str:
        """Run the process until it ends. Returns how it ended."""
        with self._lock:
            if self._stopping.is_set():
                return "was told to stop"
            try:
                self._process = process = self._spawn()
            except OSError as error:  # out of processes or open files: retry later
                return f"could not start: {error.strerror}"
        return f"ended with status {process.wait()}"

    def _spawn(self) -> subprocess.Popen[bytes]:
        # -P: never import from the folder that the service was started in.
        command = [sys.executable, "-P", "-m", "service.cli", self._word]
        return subprocess.Popen(  # noqa: S603 - the command is ours
            [sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            env=self._environment,
            # Ctrl-C goes to the terminal's whole process group: the service decides when this process stops.
            start_new_session=True,
        )

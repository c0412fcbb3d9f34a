"""The parent-death signal: processes that end when their parent does, even after a kill -9 of it.

    python parent_death.py PARENT_PID BINARY ARGS...

becomes BINARY and gets SIGTERM when the parent dies. On Linux the kernel sends it (prctl(2), PR_SET_PDEATHSIG). The
kernel watches the THREAD that started the process, so start it from the main thread. Other systems poll.

Standard library only, so that it starts in some 20 ms. Run by path, it imports nothing else of this package.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

POLL_S = 0.5
_PR_SET_PDEATHSIG = 1
_HAS_PRCTL = sys.platform == "linux"


def tie_to_parent(signal_number: int, parent_pid: int | None = None) -> None:
    """Send this process a signal when its parent dies, or at once if `parent_pid` is no longer its parent."""
    if parent_pid is None:
        parent_pid = os.getppid()
    if _HAS_PRCTL:
        _set_death_signal(signal_number)
    else:
        threading.Thread(target=_watch, args=(signal_number, parent_pid), name="parent-death", daemon=True).start()
    if os.getppid() != parent_pid:  # it died before the request
        os.kill(os.getpid(), signal_number)


def hold(parent_pid: int, command: list[str]) -> int:
    """Without prctl: run a command that ends with this process or with its parent. Returns the exit status."""
    child = subprocess.Popen(command, close_fds=False)  # noqa: S603 -- the caller's own command; the lock is inherited
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while True:
        try:
            return child.wait(POLL_S)
        except subprocess.TimeoutExpired:
            if os.getppid() != parent_pid:
                child.terminate()


def _set_death_signal(signal_number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _watch(signal_number: int, parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal_number)


def main(arguments: list[str]) -> int:
    """Request the signal for PARENT_PID's death and become BINARY. Returns a status only on failure."""
    parent_pid, *command = arguments
    if not _HAS_PRCTL:
        return hold(int(parent_pid), command)
    _set_death_signal(signal.SIGTERM)
    if os.getppid() == int(parent_pid):  # else it died before the request
        os.execv(command[0], command)  # noqa: S606 -- no shell is wanted
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

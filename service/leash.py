"""Processes that end when their parent does, however it ends: kill -9 of the service leaves nothing running.

    python leash.py PARENT_PID BINARY ARGS...

becomes BINARY and gets SIGTERM at the parent's death. On Linux the kernel sees to it (prctl(2), PR_SET_PDEATHSIG). What
it watches is the THREAD that started the process: start it from the main thread. Elsewhere somebody polls.

Standard library only, so that it starts in some 20 ms. Nothing else of ours is imported when it is run by path.
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
    """Have this process get a signal when its parent dies, or at once when `parent_pid` is its parent no longer."""
    if parent_pid is None:
        parent_pid = os.getppid()
    if _HAS_PRCTL:
        _set_death_signal(signal_number)
    else:
        threading.Thread(target=_watch, args=(signal_number, parent_pid), name="leash", daemon=True).start()
    if os.getppid() != parent_pid:  # it died before the kernel knew
        os.kill(os.getpid(), signal_number)


def hold(parent_pid: int, command: list[str]) -> int:
    """Run a command that ends with this process's parent or with this process, where there is no prctl. Its status."""
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
    """Tie this process to PARENT_PID and become BINARY. Returns a status only when that cannot be."""
    parent_pid, *command = arguments
    if not _HAS_PRCTL:
        return hold(int(parent_pid), command)
    _set_death_signal(signal.SIGTERM)
    if os.getppid() == int(parent_pid):  # else it died before the kernel knew
        os.execv(command[0], command)  # noqa: S606 -- no shell is wanted
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
